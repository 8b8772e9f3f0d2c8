"""Random walk on feature levels: controllers of several releases register and disappear while
levels change.

The decisions are the shipped ones, on an image in memory. A controller registers with the feature
ranges of its release, is unregistered while it is stopped, and returns. Meanwhile an operator
raises and lowers levels. A level may be raised between the removal of a registration and the return
of the controller. The controller must then be kept out if it does not support the level.

Invariant FeaturesAreSupported: every registered controller supports every finalized level.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from ottla.controller.decision import Context, Decision
from ottla.controller.membership.controllers import (
    register_controller,
    registered_controllers,
    unregister_controller,
)
from ottla.controller.registration_driver import registration_request
from ottla.controller.settings.update_features import update_features
from ottla.jepsen.in_memory_controller import IDENTITY, InMemoryController
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, outcome_of
from ottla.jepsen.world.invariants.replication import require
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import violation_in
from ottla.jepsen.world.walk.actions import actions_taken, drawn_actions
from ottla.metadata.features import OFFERED, LevelRange, uncovered
from ottla.metadata.image import ControllerRegistration, FeatureRange
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId
from ottla.wire.messages.unregister_controller_request import UnregisterControllerRequest
from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

CONTROLLERS = (NodeId(102), NodeId(103), NodeId(104))
FEATURES = ("group.version", "transaction.version")
"""Names of the features whose levels differ between the simulated releases, and can be lowered."""
UPGRADE, SAFE_DOWNGRADE = 1, 2


class FeatureWalk:
    """Search engine that tests changes of feature levels by random walks (runs of randomly chosen
    actions)."""

    name = "walk"
    subject = "features"
    budget = 60
    required = (
        "a controller that returns is refused",
        "a level is blocked by a registered controller",
        "a level is raised",
        "a level is lowered",
    )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one random walk of at most `budget` actions, with random choices from `chance`.
        Returns the outcome."""
        walk = ChangingReleases(chance)
        violation = violation_in(lambda: walk.go(budget))
        return outcome_of(self, chance, walk, violation)


class ChangingReleases:
    """One simulated cluster whose controllers have different releases of Ottla."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.trace = Trace()
        self.rare = RareStates()
        self.figures = {"commits": 0}
        self._cluster = InMemoryController()
        self._cluster.start(1)
        self._were_unregistered: set[NodeId] = set()

    def go(self, budget: int) -> None:
        """Perform at most `budget` random actions on the cluster, and check the invariant after
        each of them. A replayed run may end earlier."""
        rows: tuple[tuple[Callable[[], None], int, bool], ...] = (
            (self._register, 4, True),
            (self._unregister, 2, True),
            (self._raise, 4, True),
            (self._lower, 3, True),
        )
        for action in actions_taken(self.chance, drawn_actions(self.chance, rows), budget):
            action()
            self._check()

    def _context(self) -> Context:
        cluster = self._cluster
        return Context(
            config=cluster.config,
            rng=cluster.rng,
            quorum_status=cluster.quorum_status,
            api_version=2,
            cluster_id=IDENTITY.cluster_id,
            controllers=registered_controllers(cluster.image, {}),
        )

    def _some_controller(self) -> NodeId:
        return CONTROLLERS[self.chance.below(len(CONTROLLERS))]

    def _register(self) -> None:
        """Start a controller of a random release, and register it with the feature levels that the
        release supports."""
        node_id = self._some_controller()
        highest = {name: self.chance.below(OFFERED[name].highest + 1) for name in FEATURES}
        wanted = ControllerRegistration(
            id=node_id,
            incarnation_id=UUID(int=self.chance.below(1_000)),
            features=tuple(
                FeatureRange(name, levels.lowest, highest.get(name, levels.highest))
                for name, levels in sorted(OFFERED.items())
            ),
        )
        request = registration_request(wanted, IDENTITY.cluster_id)
        try:
            decision = register_controller(self._cluster.image, IDENTITY, request)
        except RefusedError:
            if node_id in self._were_unregistered:
                self.rare.sometimes("a controller that returns is refused")
            return
        self._were_unregistered.discard(node_id)
        self._take(decision)

    def _unregister(self) -> None:
        node_id = self._some_controller()
        request = UnregisterControllerRequest(controller_id=node_id)
        try:
            decision = unregister_controller(self._cluster.image, self._context(), request)
        except RefusedError:
            return
        self._were_unregistered.add(node_id)
        self._take(decision)

    def _raise(self) -> None:
        name = FEATURES[self.chance.below(len(FEATURES))]
        level = self._cluster.image.features.get(name, 0) + 1
        if level <= OFFERED[name].highest:
            is_made = self._update(name, level, UPGRADE)
            kind = (
                "a level is raised" if is_made else "a level is blocked by a registered controller"
            )
            self.rare.sometimes(kind)

    def _lower(self) -> None:
        name = FEATURES[self.chance.below(len(FEATURES))]
        level = self._cluster.image.features.get(name, 0) - 1
        if level >= 0 and self._update(name, level, SAFE_DOWNGRADE):
            self.rare.sometimes("a level is lowered")

    def _update(self, name: str, level: int, kind: int) -> bool:
        """Request a level for a feature from the active controller, and return whether the cluster
        has this level afterwards."""
        update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        request = UpdateFeaturesRequest(feature_updates=[update])
        self._take(update_features(self._cluster.image, self._context(), request))
        return self._cluster.image.features.get(name, 0) == level

    def _take(self, decision: Decision[Any]) -> None:
        before = self._cluster.next_offset
        self._cluster.take(decision)
        self.figures["commits"] += self._cluster.next_offset - before

    def _check(self) -> None:
        image = self._cluster.image
        levels = sorted(image.features.items())
        self.trace.add(len(image.controllers), *(level for _, level in levels))
        for one in image.controllers.values():
            ranges = {found.name: LevelRange(found.lowest, found.highest) for found in one.features}
            missing = uncovered(levels, ranges)
            require(missing is None, "FeaturesAreSupported", f"{one.id} does not support {missing}")
