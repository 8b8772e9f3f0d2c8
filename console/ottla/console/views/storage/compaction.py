"""Page of log compaction: logs with their dirty ratio, their last pass, and the space that the pass
saved."""

from ottla.client.admin_parts.admin_cleaner import CleanerDescription, LogCleaning
from ottla.console.absences import CLUSTER_DESCRIBE, attempt_each
from ottla.console.form_values import form_number
from ottla.console.listing import listing
from ottla.console.page_types import Action, Page, PageRequest, PageView
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
    listed,
    milliseconds,
    percent,
    sheet_view,
    size,
    text,
    when,
)
from ottla.console.views.groups.group_parts import topic_address
from ottla.model.amounts import duration
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId, TopicPartition

BAD = ("failed", "set aside", "offline")
TONES = {"cleaning": "good", "due": "warning", **dict.fromkeys(BAD, "bad")}
LogRow = tuple[NodeId, TopicPartition, LogCleaning]


async def compaction(request: PageRequest) -> PageView:
    """Return the page that shows all compacted logs of the brokers that respond."""
    found, absent = await attempt_each(
        request.admin,
        "the state of compaction",
        request.admin.describe_cleaner,
        CLUSTER_DESCRIBE,
        is_own=True,
    )
    parts: list[SheetPart] = [one.part(request.user) for one in absent]
    if found:
        rows = [(node, at, log) for node, one in found.items() for at, log in one.logs.items()]
        page = listing(
            rows,
            request.query or {"sort": "-dirty"},
            text_of=lambda row: f"{row[1]} broker {row[0]} {row[2].state} {row[2].reason or ''}",
            sorts={
                "topic": lambda row: (row[1], row[0]),
                "broker": lambda row: (row[0], row[1]),
                "state": lambda row: (row[2].state, row[1]),
                "dirty": lambda row: row[2].dirty_ratio,
                "saved": lambda row: None if row[2].last is None else row[2].last.saved_bytes,
            },
        )
        parts += [
            _brokers(found),
            listed(
                "Compacted logs",
                page,
                (
                    Column(title="Topic", key="topic"),
                    Column(title="Partition", is_number=True),
                    Column(title="Broker", key="broker", is_number=True),
                    Column(title="State", key="state"),
                    Column(title="Dirty", key="dirty", is_number=True),
                    Column(title="Clean", is_number=True),
                    Column(title="To clean", is_number=True),
                    Column(title="Last pass"),
                    Column(title="It took", is_number=True),
                    Column(title="It saved", key="saved", is_number=True),
                    Column(title="Reason"),
                ),
                map(_log_row, page.rows),
                empty="No topic is compacted.",
                empty_command="ottla topic alter TOPIC --config cleanup.policy=compact",
                search_label="Search logs",
            ),
            _run_form(),
            FormPart(
                title="Retry failed logs",
                button="Retry all failed logs of a broker",
                action="compaction-retry",
                fields=(FormField(name="broker", label="Broker", is_required=True),),
            ),
        ]
    return sheet_view("Compaction", parts)


async def run(request: PageRequest) -> PageView:
    """Request a cleaning pass (compaction) of one log of one broker. Returns a redirect to the page
    of log compaction."""
    node = NodeId(form_number("broker", request.form.get("broker", "")))
    topic = request.form.get("topic", "").strip()
    at = TopicPartition(topic, form_number("partition", request.form.get("partition", "")))
    answer = (await request.admin.clean_logs(node, [at])).get(at)
    if answer is not None and answer.refusal is not None:
        raise RefusedError(answer.refusal.code, f"{at}: {answer.refusal.message}")
    said = f"Broker {node} will compact {at} next."
    if answer is not None and answer.note:
        said = f"{at} on broker {node}: {answer.note}"
    return PageView(context={}, location="/compaction", notice=said)


async def retry(request: PageRequest) -> PageView:
    """Retry the compaction of all logs of one broker whose last compaction failed. Returns a
    redirect to the page of log compaction."""
    node = NodeId(form_number("broker", request.form.get("broker", "")))
    answers = await request.admin.retry_cleaning(node)
    accepted = sum(one.refusal is None for one in answers.values())
    return PageView(
        context={},
        location="/compaction",
        notice=f"Broker {node} tries {accepted} failed logs again.",
    )


def _brokers(found: dict[NodeId, CleanerDescription]) -> TablePart:
    rows = tuple(
        (
            count(int(node)),
            count(one.thread_count),
            count(one.pass_count),
            count(one.failure_count),
            size(one.read_bytes),
            size(one.written_bytes),
            size(one.read_bytes - one.written_bytes),
            badge(str(one.died_worker_count), "bad" if one.died_worker_count else "good"),
        )
        for node, one in list(found.items())[:100]
    )
    return TablePart(
        title="Cleaners since the start of their brokers",
        columns=(
            Column(title="Broker", is_number=True),
            Column(title="Cleaners", is_number=True),
            Column(title="Passes", is_number=True),
            Column(title="Failed", is_number=True),
            Column(title="Read", is_number=True),
            Column(title="Written", is_number=True),
            Column(title="Saved", is_number=True),
            Column(title="Cleaners that died"),
        ),
        rows=rows,
    )


def _log_row(row: LogRow) -> tuple[Cell, ...]:
    node, at, log = row
    last = log.last
    reason = log.reason or ""
    if log.retry_in_ms is not None:
        reason = f"{reason} (tried again in {duration(log.retry_in_ms)})"
    return (
        code(at.topic, topic_address(at.topic)),
        count(at.partition),
        count(int(node)),
        badge(log.state, TONES.get(log.state, "neutral")),
        percent(log.dirty_ratio),
        size(log.clean_bytes),
        size(log.cleanable_bytes),
        when(None if last is None else last.ended_ms),
        milliseconds(None if last is None else last.duration_ms),
        size(None if last is None else last.saved_bytes),
        text(reason),
    )


def _run_form() -> FormPart:
    return FormPart(
        title="Compact a log next",
        button="Compact",
        action="compaction-run",
        fields=(
            FormField(name="topic", label="Topic", is_required=True),
            FormField(name="partition", label="Partition", type="number", is_required=True),
            FormField(name="broker", label="Broker", type="number", is_required=True),
        ),
    )


PAGES = (
    Page(
        name="compaction",
        path="/compaction",
        title="Compaction",
        command="ottla cleaner status",
        view=compaction,
        section="Data",
        key="c",
        actions=(
            Action(
                name="compaction-run",
                path="/compaction/run",
                command="ottla cleaner run {topic}",
                run=run,
            ),
            Action(
                name="compaction-retry",
                path="/compaction/retry",
                command="ottla cleaner retry",
                run=retry,
            ),
        ),
    ),
)
