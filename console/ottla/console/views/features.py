"""Features: the finalized levels of the cluster (KIP-584), and the levels that brokers support."""

from ottla.client.admin_parts.admin_cluster import FeatureLevels, FeatureUpdateKind
from ottla.console.absences import CLUSTER_DESCRIBE, Absence, attempt
from ottla.console.page_types import Action, Page, PageRequest, PageView, UserRole
from ottla.console.sheets import (
    Cell,
    Column,
    FormField,
    FormPart,
    SheetPart,
    TablePart,
    badge,
    code,
    count,
    sheet_view,
    text,
)
from ottla.model.errors import ConfigError

LEVEL_DIGITS_MAX = 5
COLUMNS = (
    Column(title="Feature"),
    Column(title="Finalized level", is_number=True),
    Column(title="Supported"),
    Column(title="State"),
)


async def features(request: PageRequest) -> PageView:
    """Return the view of all features."""
    found = await attempt("features", request.admin.describe_features(), CLUSTER_DESCRIBE)
    if isinstance(found, Absence):
        return sheet_view("Features", [found.part(request.user)])
    names = tuple((name, name) for name in sorted(found))
    parts: list[SheetPart] = [
        TablePart(
            title="Features",
            columns=COLUMNS,
            rows=tuple(_row(name, one) for name, one in sorted(found.items())),
        ),
        _form("feature-upgrade", "Raise a level", "Raise", names, {}),
        _form("feature-downgrade", "Lower a level", "Lower", names, {"change": "downgrade"}),
    ]
    return sheet_view(
        "Features",
        parts,
        lead="A new release works at the old levels until they are raised. Raising cannot always "
        "be undone.",
    )


async def upgrade(request: PageRequest) -> PageView:
    """Raise the finalized level of a feature."""
    return await _change(request, FeatureUpdateKind.UPGRADE)


async def downgrade(request: PageRequest) -> PageView:
    """Lower the finalized level of a feature, if no metadata is lost."""
    return await _change(request, FeatureUpdateKind.SAFE_DOWNGRADE)


async def _change(request: PageRequest, kind: FeatureUpdateKind) -> PageView:
    name = request.form.get("feature", "")
    level = request.form.get("level", "").strip()
    if not (level.isascii() and level.isdecimal() and len(level) <= LEVEL_DIGITS_MAX):
        raise ConfigError("level", f"is {level[:40]!r}; it must be a whole number")
    await request.admin.update_features({name: int(level)}, kind=kind)
    return PageView(
        context={}, location="/features", notice=f"Feature {name} has level {int(level)}."
    )


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


def _form(
    action: str,
    title: str,
    button: str,
    names: tuple[tuple[str, str], ...],
    values: dict[str, str],
) -> FormPart:
    return FormPart(
        title=title,
        button=button,
        action=action,
        values=values,
        fields=(
            FormField(name="feature", label="Feature", type="select", options=names),
            FormField(name="level", label="Level", type="number", is_required=True),
        ),
    )


PAGES = (
    Page(
        name="features",
        path="/features",
        title="Features",
        command="ottla cluster features describe",
        view=features,
        section="Operations",
        key="y",
        actions=(
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
