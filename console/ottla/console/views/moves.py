"""Page of replica moves: reassignments and the balance plan in progress, with their progress and
throttle, and forms that cancel them."""

from collections.abc import Mapping

from ottla.client.admin_parts.admin_replicas import Reassignment
from ottla.console.absences import CLUSTER_DESCRIBE, Absence, NeededRight, attempt, attempt_own
from ottla.console.form_values import form_number
from ottla.console.listing import listing
from ottla.console.page_types import Action, Page, PageRequest, PageView
from ottla.console.sheets import (
    Cell,
    Column,
    FactsPart,
    FormField,
    FormPart,
    LinksPart,
    NotePart,
    SheetPart,
    badge,
    code,
    count,
    listed,
    percent,
    sheet_view,
    size,
    text,
)
from ottla.console.views.explain import explain_address
from ottla.console.views.groups.group_parts import topic_address
from ottla.insight.answers import ANSWERS
from ottla.insight.facts.stored_plan import StoredPlan, read_stored_plan
from ottla.model.balance.plan_text import StoredMove
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.balance import BALANCE_PLAN, BALANCE_RATE_MAX

READS_PLAN = NeededRight(operation="describe-configs")
RATE_DIGITS_MAX = 15
MOVE_COLUMNS = (
    Column(title="Topic", key="topic"),
    Column(title="Partition", is_number=True),
    Column(title="Replicas now"),
    Column(title="Added"),
    Column(title="Removed"),
    Column(title="Copied", is_number=True),
    Column(title="Size", is_number=True),
    Column(title="Part of"),
)


async def moves(request: PageRequest) -> PageView:
    """Return the page that shows all moves of replicas that are not complete."""
    parts: list[SheetPart] = [_links()]
    plan = await attempt_own(
        request.admin, "the balance", lambda: read_stored_plan(request.admin), READS_PLAN
    )
    planned: Mapping[TopicPartition, StoredMove] = {}
    if isinstance(plan, Absence):
        parts.append(plan.part(request.user))
    else:
        planned = {one.at: one for one in plan.moves}
        parts += _plan_parts(plan)
    found = await attempt("moves", request.admin.list_reassignments(), CLUSTER_DESCRIBE)
    if isinstance(found, Absence):
        return sheet_view("Moves", [*parts, found.part(request.user)])
    waiting = {at: one for at, one in planned.items() if at not in found}
    rows = [*found.items(), *((at, _of_plan(one)) for at, one in waiting.items())]
    page = listing(
        rows,
        request.query,
        text_of=lambda row: str(row[0]),
        sorts={"topic": lambda row: row[0]},
    )
    shown = {at: one for at, one in page.rows if at in found}
    sizes = await _sizes(request, shown)
    parts.append(
        listed(
            "Moves",
            page,
            MOVE_COLUMNS,
            (
                _row(at, one, sizes.get(at), is_planned=at in planned, is_waiting=at in waiting)
                for at, one in page.rows
            ),
            empty="No replica moves now.",
            empty_command="ottla cluster balance --dry-run",
            search_label="Search moves",
        )
    )
    if found:
        parts.append(_cancel_form())
    return sheet_view("Moves", parts)


async def cancel_move(request: PageRequest) -> PageView:
    """Cancel the reassignment of one partition, which restores its former replicas. Returns a
    redirect to the page of moves."""
    topic = request.form.get("topic", "").strip()
    index = form_number("partition", request.form.get("partition", ""))
    at = TopicPartition(topic, index)
    refusal = (await request.admin.try_alter_reassignments({at: None})).get(at)
    if refusal is not None:
        raise RefusedError(refusal.code, f"{at}: {refusal.message}")
    return PageView(
        context={}, location="/moves", notice=f"The move of {at} was cancelled: its replicas stay."
    )


async def cancel_balance(request: PageRequest) -> PageView:
    """Cancel the replica moves of the balance plan that are not complete. Returns a redirect to the
    page of moves."""
    await request.admin.alter_broker_configs(None, {BALANCE_PLAN: None})
    return PageView(context={}, location="/moves", notice="The balance was cancelled.")


async def throttle_balance(request: PageRequest) -> PageView:
    """Change the highest throttle of the balance plan that the cluster carries out. Returns a
    redirect to the page of moves."""
    rate = form_number("rate", request.form.get("rate", ""), digits_max=RATE_DIGITS_MAX)
    await request.admin.alter_broker_configs(None, {BALANCE_RATE_MAX: str(rate)})
    return PageView(
        context={},
        location="/moves",
        notice=f"The moves of the balance copy at most {rate:,} bytes per second.",
    )


def copied_part(sizes: Mapping[int, int], adding: tuple[int, ...]) -> float | None:
    """Return the copied fraction of a replica move, from 0 to 1. `sizes` has the partition's size
    in bytes on each broker, and `adding` the brokers that copy it. Returns None if no complete
    replica's size is known."""
    whole = max((one for broker, one in sizes.items() if broker not in adding), default=0)
    if not adding:
        return 1.0
    if not whole:
        return None
    return sum(min(sizes.get(one, 0), whole) for one in adding) / (whole * len(adding))


async def _sizes(
    request: PageRequest, shown: Mapping[TopicPartition, Reassignment]
) -> dict[TopicPartition, dict[int, int]]:
    """Return the sizes, in bytes, of the partitions on this page at each broker that responds."""
    sizes: dict[TopicPartition, dict[int, int]] = {at: {} for at in shown}
    brokers = sorted({broker for one in shown.values() for broker in one.replicas})
    for broker in brokers:
        found = await attempt(
            "sizes", request.admin.describe_log_dirs(broker, list(shown)), CLUSTER_DESCRIBE
        )
        for directory in [] if isinstance(found, Absence) else found:
            for at, replica in directory.replicas.items():
                if at in sizes:
                    sizes[at][int(broker)] = replica.size_bytes
    return sizes


def _of_plan(one: StoredMove) -> Reassignment:
    """Return a replica move of the balance plan that has not started, in the form of a
    reassignment."""
    return Reassignment(
        replicas=tuple(map(NodeId, one.before)),
        adding=tuple(NodeId(node) for node in one.after if node not in one.before),
        removing=tuple(NodeId(node) for node in one.before if node not in one.after),
    )


def _row(
    at: TopicPartition,
    one: Reassignment,
    sizes: Mapping[int, int] | None,
    *,
    is_planned: bool,
    is_waiting: bool,
) -> tuple[Cell, ...]:
    copied: Cell = badge("waits for its turn")
    if not is_waiting:
        copied = percent(copied_part(sizes or {}, tuple(map(int, one.adding))))
    return (
        code(at.topic, topic_address(at.topic)),
        count(at.partition),
        text(_nodes(one.replicas)),
        text(_nodes(one.adding)),
        text(_nodes(one.removing)),
        copied,
        size(max(sizes.values()) if sizes else None),
        text("balance" if is_planned else "reassignment"),
    )


def _nodes(nodes: tuple[NodeId, ...]) -> str:
    return ", ".join(str(int(one)) for one in nodes)


def _plan_parts(plan: StoredPlan) -> list[SheetPart]:
    if not plan.moves:
        return [
            NotePart(
                text="No balance is in progress.",
                command="ottla cluster balance --dry-run",
            )
        ]
    return [
        FactsPart(
            title="Balance in progress",
            facts=(
                ("Moves that are not complete", count(len(plan.moves))),
                ("Throttle now, in bytes per second", count(plan.rate)),
            ),
        ),
        FormPart(
            title="Change the throttle",
            button="Change the throttle",
            action="balance-throttle",
            fields=(
                FormField(
                    name="rate",
                    label="Highest rate in bytes per second",
                    type="number",
                    is_required=True,
                    hint="to and from each broker; the controllers go below it for producers",
                ),
            ),
        ),
        FormPart(
            title="Cancel the balance",
            button="Cancel all moves that are not complete",
            action="balance-cancel",
            values={"plan": "balance"},
            hint="Their replicas stay where they were. Complete moves are not undone.",
        ),
    ]


def _cancel_form() -> FormPart:
    return FormPart(
        title="Cancel a move",
        button="Cancel the move",
        action="move-cancel",
        fields=(
            FormField(name="topic", label="Topic", is_required=True),
            FormField(name="partition", label="Partition", type="number", is_required=True),
        ),
    )


def _links() -> LinksPart:
    links = [("Moves", "/moves")]
    if any(one.name == "plan" for one in ANSWERS):
        links.append(("Plan moves (dry run)", explain_address("plan")))
    links.append(("Why are disks full?", explain_address("disk")))
    return LinksPart(links=tuple(links), current="Moves")


PAGES = (
    Page(
        name="moves",
        path="/moves",
        title="Moves",
        command="ottla cluster balance --status",
        view=moves,
        section="Operations",
        key="v",
        actions=(
            Action(
                name="move-cancel",
                path="/moves/cancel",
                command="ottla topic reassign {topic} --cancel",
                run=cancel_move,
            ),
            Action(
                name="balance-cancel",
                path="/moves/{plan}/cancel",
                command="ottla cluster balance --cancel",
                run=cancel_balance,
                confirms="plan",
            ),
            Action(
                name="balance-throttle",
                path="/moves/throttle",
                command="ottla config set --cluster {rate}",
                run=throttle_balance,
            ),
        ),
    ),
)
