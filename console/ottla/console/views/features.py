"""Page of features: the finalized levels of the cluster (KIP-584), and the levels that brokers
support."""

from collections.abc import Mapping

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_cluster import FeatureLevels, FeatureUpdateKind
from ottla.console.absences import CLUSTER_DESCRIBE, Absence, attempt, attempt_each
from ottla.console.form_values import form_number
from ottla.console.page_types import Action, Page, PageRequest, PageView, UserRole
from ottla.console.sheets import (
    Cell,
    Column,
    FormField,
    FormPart,
    SheetPart,
    TablePart,
    badge,
    choice_form,
    code,
    count,
    sheet_view,
    text,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId

LEVEL_DIGITS_MAX = 5
BROKERS_MAX = 100
FEATURE = ("feature", "Feature")
LEVEL = FormField(name="level", label="Level", type="number", is_required=True)
FINALIZED_TOGETHER = ("ottla.version", "metadata.version")
"""Features whose levels are raised after an upgrade of all nodes. Other features change the
capabilities of clients, and are raised one at a time."""
COLUMNS = (
    Column(title="Feature"),
    Column(title="Finalized level", is_number=True),
    Column(title="Supported"),
    Column(title="State"),
)


async def features(request: PageRequest) -> PageView:
    """Return the page that shows the levels of all features of the cluster."""
    found = await attempt("features", request.admin.describe_features(), CLUSTER_DESCRIBE)
    if isinstance(found, Absence):
        return sheet_view("Features", [found.part(request.user)])
    names = tuple((name, name) for name in sorted(found))
    levels, absent = await _levels(request.admin)
    parts: list[SheetPart] = [
        TablePart(
            title="Features",
            columns=COLUMNS,
            rows=tuple(_row(name, one) for name, one in sorted(found.items())),
        ),
        _releases(levels),
        *(one.part(request.user) for one in absent),
        *_finalization(levels, is_complete=not absent),
        choice_form("feature-upgrade", "Raise a level", "Raise", FEATURE, names, LEVEL),
        choice_form(
            "feature-downgrade",
            "Lower a level",
            "Lower",
            FEATURE,
            names,
            LEVEL,
            values={"change": "downgrade"},
        ),
    ]
    return sheet_view(
        "Features",
        parts,
        lead="A new release works at the old levels until they are raised. Raising cannot always "
        "be undone.",
    )


async def finalize(request: PageRequest) -> PageView:
    """Finalize an upgrade by raising the feature levels to the highest levels that all brokers
    support. Returns a redirect to the page of features."""
    levels, absent = await _levels(request.admin)
    if absent:
        raise RefusedError(ErrorCode.BROKER_NOT_AVAILABLE, f"{absent[0].thing}: {absent[0].reason}")
    wanted = raisable(levels)
    if not wanted:
        raise RefusedError(
            ErrorCode.INVALID_UPDATE_VERSION, "the levels are the highest of all brokers already"
        )
    await request.admin.update_features(wanted, kind=FeatureUpdateKind.UPGRADE)
    said = ", ".join(f"{name} {level}" for name, level in wanted.items())
    return PageView(context={}, location="/features", notice=f"The upgrade is finalized: {said}.")


def raisable(levels: Mapping[NodeId, Mapping[str, FeatureLevels]]) -> dict[str, int]:
    """Return the feature levels to which an upgrade can be finalized. They are the highest levels
    that all brokers support, for features whose finalized level is lower."""
    found: dict[str, int] = {}
    for name in FINALIZED_TOGETHER:
        known = [one[name] for one in levels.values() if name in one]
        if known and len(known) == len(levels):
            highest = min(one.supported_max for one in known)
            if highest > max(one.finalized for one in known):
                found[name] = highest
    return found


async def _levels(
    admin: Admin,
) -> tuple[dict[NodeId, dict[str, FeatureLevels]], list[Absence]]:
    return await attempt_each(admin, "the features", admin.describe_features, CLUSTER_DESCRIBE)


def _releases(levels: Mapping[NodeId, Mapping[str, FeatureLevels]]) -> TablePart:
    rows = tuple(
        (
            count(int(node)),
            *(
                count(one[name].supported_max if name in one else None)
                for name in FINALIZED_TOGETHER
            ),
        )
        for node, one in list(levels.items())[:BROKERS_MAX]
    )
    return TablePart(
        title="Highest levels that each broker supports",
        columns=(
            Column(title="Broker", is_number=True),
            *(Column(title=name, is_number=True) for name in FINALIZED_TOGETHER),
        ),
        rows=rows,
        empty="No broker answers.",
    )


def _finalization(
    levels: Mapping[NodeId, Mapping[str, FeatureLevels]], *, is_complete: bool
) -> list[SheetPart]:
    wanted = raisable(levels)
    if not wanted or not is_complete:
        return []
    said = ", ".join(f"{name} to {level}" for name, level in wanted.items())
    return [
        FormPart(
            title="Finalize the upgrade",
            button="Finalize the upgrade",
            action="upgrade-finalize",
            values={"change": "finalize"},
            hint=f"All brokers run the new release. This raises {said}; afterwards the nodes may "
            "not return to the former release.",
        )
    ]


async def upgrade(request: PageRequest) -> PageView:
    """Raise the finalized level of a feature, as the form requests. Returns a redirect to the page
    of features."""
    return await _change(request, FeatureUpdateKind.UPGRADE)


async def downgrade(request: PageRequest) -> PageView:
    """Lower the finalized level of a feature. The cluster refuses the change if metadata would be
    lost. Returns a redirect to the page of features."""
    return await _change(request, FeatureUpdateKind.SAFE_DOWNGRADE)


async def _change(request: PageRequest, kind: FeatureUpdateKind) -> PageView:
    name = request.form.get("feature", "")
    level = form_number("level", request.form.get("level", ""), digits_max=LEVEL_DIGITS_MAX)
    await request.admin.update_features({name: level}, kind=kind)
    return PageView(context={}, location="/features", notice=f"Feature {name} has level {level}.")


def _row(name: str, one: FeatureLevels) -> tuple[Cell, ...]:
    if one.finalized == one.supported_max:
        state = badge("highest level", "good")
    elif one.finalized < one.supported_min or one.finalized > one.supported_max:
        state = badge("not supported by this broker", "bad")
    else:
        state = badge(f"can be raised to {one.supported_max}", "warning")
    return (
        code(name),
        count(one.finalized),
        text(f"{one.supported_min} to {one.supported_max}"),
        state,
    )


PAGES = (
    Page(
        name="features",
        path="/features",
        title="Features",
        command="ottla cluster features describe",
        covers=("ottla cluster upgrade status",),
        view=features,
        section="Operations",
        key="y",
        actions=(
            Action(
                name="upgrade-finalize",
                path="/features/upgrades/{change}",
                command="ottla cluster upgrade finalize",
                run=finalize,
                role=UserRole.ADMIN,
                confirms="change",
            ),
            Action(
                name="feature-upgrade",
                path="/features/upgrade",
                command="ottla cluster features upgrade {feature}",
                run=upgrade,
                role=UserRole.ADMIN,
            ),
            Action(
                name="feature-downgrade",
                path="/features/{change}",
                command="ottla cluster features downgrade {feature}",
                run=downgrade,
                role=UserRole.ADMIN,
                confirms="change",
            ),
        ),
    ),
)
