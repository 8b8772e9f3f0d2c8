"""`ottla cluster upgrade`: shows the releases of the nodes, and finalizes feature levels.

Nodes may return to the previous release until the feature levels are finalized.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.cli.cluster.upgrades.features import change_levels, levels_of
from ottla.cli.common import print_json
from ottla.cli.confirmation import CONFIRMATION
from ottla.cli.options import option
from ottla.cli.tables import print_table
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb, verbs_of
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_cluster import FeatureLevels, FeatureUpdateKind
from ottla.client.network.connection import ConnectionLostError
from ottla.insight.facts.survey_driver import SurveyedBroker, brokers_of, controllers_of
from ottla.metadata.features import (
    FORMER_RELEASE,
    KRAFT_VERSION,
    METADATA_VERSION,
    OTTLA_VERSION,
    SUPPORTED,
    changes_records,
    level_name,
    levels_before_return,
)
from ottla.model.errors import ErrorCode, RefusedError

UNREADY = 2
VOTERS_ARE_FIXED = (
    "the voters are fixed (kraft.version 0); 'ottla cluster upgrade finalize --feature "
    "kraft.version=1' lets them change, for good"
)
FINALIZED_TOGETHER = (OTTLA_VERSION, METADATA_VERSION)
"""Features whose levels are raised after an upgrade of all nodes. Other features change the
capabilities of clients, so an operator raises them separately."""


class BrokerLevels(NamedTuple):
    """A broker, and the feature levels that it supports. The levels are empty if the broker did not
    respond."""

    broker: SurveyedBroker
    features: Mapping[str, FeatureLevels]

    def highest(self, name: str) -> int:
        """Return the highest level of the feature `name` that the broker supports, or 0 if the
        broker does not know the feature."""
        found = self.features.get(name)
        return 0 if found is None else found.supported_max


@dataclass(frozen=True, slots=True)
class UpgradeState:
    """State of an upgrade: the levels that the brokers support, and the finalized levels."""

    brokers: tuple[BrokerLevels, ...]
    controllers: Mapping[int, str | None] = field(default_factory=dict)
    """Version of Ottla that each controller runs, by node id, or None if it is unknown."""

    @property
    def are_voters_fixed(self) -> bool:
        """True if the voters of the quorum cannot be changed at the finalized kraft.version."""
        is_known = any(KRAFT_VERSION in one.features for one in self.brokers)
        return is_known and self._finalized_level(KRAFT_VERSION) == 0

    @property
    def finalized(self) -> dict[str, int]:
        """Finalized level of each feature in FINALIZED_TOGETHER, or 0 if no broker reports the
        feature."""
        return {name: self._finalized_level(name) for name in FINALIZED_TOGETHER}

    def _finalized_level(self, name: str) -> int:
        found = (one.features[name].finalized for one in self.brokers if name in one.features)
        return max(found, default=0)

    @property
    def lowered_before_return(self) -> dict[str, int]:
        """Levels to which features must be lowered before a node can return to the previous
        release."""
        names = {name for one in self.brokers for name in one.features}
        return levels_before_return({name: self._finalized_level(name) for name in names})

    @property
    def can_return(self) -> bool:
        """True if nodes can return to the previous release of Ottla, either at once or after
        feature levels are lowered."""
        return not any(
            changes_records(name, above=level, up_to=self._finalized_level(name))
            for name, level in self.lowered_before_return.items()
        )

    @property
    def targets(self) -> dict[str, int]:
        """Highest level of each feature that all brokers support, if that level is not finalized
        yet."""
        return self._not_finalized(
            {
                name: min((one.highest(name) for one in self.brokers), default=0)
                for name in FINALIZED_TOGETHER
            }
        )

    @property
    def later(self) -> dict[str, int]:
        """Highest level of each feature that this command's release supports, if that level is not
        finalized yet."""
        return self._not_finalized({name: SUPPORTED[name].highest for name in FINALIZED_TOGETHER})

    def _not_finalized(self, highest: Mapping[str, int]) -> dict[str, int]:
        finalized = self.finalized
        return {name: level for name, level in highest.items() if level > finalized[name]}


async def state_of(admin: Admin) -> UpgradeState:
    """Return the state of the cluster's upgrade, as all brokers report it."""
    found = []
    for broker in await brokers_of(admin):
        levels: Mapping[str, FeatureLevels] = {}
        if not broker.failure:
            try:
                levels = await admin.describe_features(broker.id)
            except (RefusedError, ConnectionLostError) as error:
                broker.failure = str(error)
        found.append(BrokerLevels(broker, levels))
    return UpgradeState(tuple(found), await controllers_of(admin))


async def obstacle_of(admin: Admin, levels: Mapping[str, int]) -> str | None:
    """Return the reason why the controllers refuse the feature levels, or None if they accept
    them."""
    try:
        await admin.update_features(levels, is_dry_run=True)
    except RefusedError as refusal:
        return refusal.message
    return None


async def status(admin: Admin, arguments: argparse.Namespace) -> int:
    """Print the releases of the nodes, the finalized feature levels, and the levels that can be
    finalized next. Returns exit code 2 if a node prevents their finalization."""
    state = await state_of(admin)
    wanted = state.targets or state.later
    obstacle = await obstacle_of(admin, wanted) if wanted else None
    if arguments.format == "json":
        print_json(
            {
                "finalized": state.finalized,
                "next": wanted,
                "ready": not obstacle,
                "reason": obstacle,
                "can_return": state.can_return,
                "lower_before_return": state.lowered_before_return if state.can_return else {},
                "brokers": [
                    {
                        "id": one.broker.id,
                        "version": one.broker.version or None,
                        "failure": one.broker.failure or None,
                        "highest": {name: one.highest(name) for name in FINALIZED_TOGETHER},
                    }
                    for one in state.brokers
                ],
                "controllers": [
                    {"id": node, "version": version} for node, version in state.controllers.items()
                ],
                "voters_fixed": state.are_voters_fixed,
            }
        )
        return UNREADY if obstacle else 0
    _say(state, wanted)
    if obstacle:
        note(f"ottla cluster upgrade: not ready: {obstacle}")
        return UNREADY
    say(_outlook(state) if wanted else "nothing is left to finalize")
    if state.are_voters_fixed and not wanted:
        say(VOTERS_ARE_FIXED)
    return 0


def _outlook(state: UpgradeState) -> str:
    """Return a sentence that explains if nodes can return to the previous release."""
    lowered = state.lowered_before_return
    if not state.can_return:
        return f"no node may return to release {FORMER_RELEASE}: it does not support these levels"
    if lowered:
        levels = " ".join(f"{name}={level}" for name, level in lowered.items())
        return (
            f"before a node returns to release {FORMER_RELEASE}, stop the consumers of share "
            f"groups and run 'ottla cluster features downgrade {levels}'"
        )
    return "each node may return to the release before; 'ottla cluster upgrade finalize' ends that"


def _say(state: UpgradeState, wanted: Mapping[str, int]) -> None:
    rows = [
        (name, level_name(name, now), level_name(name, wanted[name]) if name in wanted else None)
        for name, now in state.finalized.items()
    ]
    print_table(("FEATURE", "FINALIZED", "NEXT"), rows)
    say()
    brokers = [
        (
            one.broker.id,
            one.broker.version or None,
            one.broker.failure or "answers",
            *(one.highest(name) or None for name in FINALIZED_TOGETHER),
        )
        for one in state.brokers
    ]
    print_table(("BROKER", "VERSION", "STATE", "OTTLA-LEVEL", "METADATA-LEVEL"), brokers)
    say()
    if state.controllers:
        print_table(("CONTROLLER", "VERSION"), list(state.controllers.items()))
        say()


async def finalize(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla cluster upgrade finalize`: raise feature levels. By default, they are raised to the
    highest levels that all nodes support. Returns the exit code.

    Raises RefusedError if a broker did not respond, or if a node does not support a level.
    """
    if arguments.feature:
        chosen = levels_of(arguments.feature)
        return await change_levels(admin, arguments, chosen, FeatureUpdateKind.UPGRADE)
    state = await state_of(admin)
    for broker, _ in state.brokers:
        if broker.failure:
            raise RefusedError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"broker {broker.id} did not answer ({broker.failure}); start it, or unregister it "
                "with 'ottla broker unregister' if it is gone",
            )
    if not state.targets:
        blocked = [level_name(name, level) for name, level in state.later.items()]
        if blocked:
            raise RefusedError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"not all brokers support level {', '.join(blocked)}; 'ottla cluster upgrade "
                "status' shows which",
            )
        note("nothing is left to finalize")
        return 0
    return await change_levels(admin, arguments, state.targets, FeatureUpdateKind.UPGRADE)


FEATURE = option(
    "--feature NAME=LEVEL ...",
    "raise only these features, such as kraft.version=1, after which voters may change",
)

UPGRADE = verbs_of(
    "upgrade",
    "show and end an upgrade",
    admin_verb(
        "status",
        "show the nodes' releases, the finalized levels and the next ones",
        status,
    ),
    admin_verb(
        "finalize",
        "raise the levels to those of the new release, after which no node may return",
        finalize,
        FEATURE,
        CONFIRMATION,
        description="Until then, each node may return to the previous release, one by one. Every "
        "registered broker and controller must support the levels: unregister nodes that are "
        "gone.",
    ),
)
