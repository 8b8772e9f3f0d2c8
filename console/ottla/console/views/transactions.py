"""Pages of transactions: transactional ids with their states, the open transactions of a topic, and
the abort of transactions that no coordinator will end."""

from collections.abc import Mapping

import trio

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_replicas import ActiveProducer
from ottla.client.admin_parts.admin_transactions import (
    TransactionDescription,
    TransactionListing,
)
from ottla.console.absences import Absence, NeededRight, attempt
from ottla.console.form_values import number_in
from ottla.console.links import address
from ottla.console.listing import listing
from ottla.console.page_types import Action, Page, PageRequest, PageView, UserRole
from ottla.console.sheets import (
    Cell,
    Column,
    FactsPart,
    FormField,
    FormPart,
    LinksPart,
    NotePart,
    SheetPart,
    TablePart,
    badge,
    code,
    count,
    listed,
    milliseconds,
    sheet_view,
    when,
)
from ottla.console.views.groups.group_parts import topic_address
from ottla.insight.facts.hanging import OpenTransaction, hanging_of, open_transactions
from ottla.insight.facts.hanging_driver import owners_of, without_coordinator
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import ProducerId, TopicPartition

BROKER_S = 5.0
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
DETAILS_AT_ONCE = 8
DETAILS_MAX = 100
PARTITIONS_MAX = 1_000
"""Maximum number of partitions of a topic whose active producers are requested."""
STATES = (
    "",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "Empty",
    "CompleteCommit",
    "CompleteAbort",
)
TONES = {"Ongoing": "warning", "PrepareCommit": "warning", "PrepareAbort": "warning"}
LISTS = NeededRight(operation="describe", resource="transactional id")


def transaction_address(transactional_id: str) -> str:
    """Return the address of the page that shows a transactional id."""
    return address("/transactions/{id}", {"id": transactional_id})


def open_address(topic: str) -> str:
    """Return the address of the page with the open transactions of a topic."""
    return address("/transactions-of/{topic}", {"topic": topic})


async def transactions(request: PageRequest) -> PageView:
    """Return the page that lists all transactional ids."""
    state = request.query.get("state", "")
    found, absent = await _listed(request.admin, state if state in STATES else "")
    page = listing(
        found,
        request.query,
        text_of=lambda one: f"{one.transactional_id} {one.state} {one.producer_id}",
        sorts={
            "id": lambda one: one.transactional_id,
            "state": lambda one: one.state,
            "producer": lambda one: one.producer_id,
        },
    )
    opened = await _details(request.admin, page.rows)
    return sheet_view(
        "Transactions",
        [
            FormPart(
                title="Show",
                button="Show",
                href="/transactions",
                fields=(
                    FormField(
                        name="state",
                        label="State",
                        type="select",
                        value=state,
                        options=tuple((one, one or "any state") for one in STATES),
                    ),
                ),
            ),
            _topic_form(),
            *(one.part(request.user) for one in absent),
            listed(
                "Transactional ids",
                page,
                (
                    Column(title="Transactional id", key="id"),
                    Column(title="State", key="state"),
                    Column(title="Producer id", key="producer", is_number=True),
                    Column(title="Coordinator", is_number=True),
                    Column(title="Open since"),
                    Column(title="Timeout", is_number=True),
                    Column(title="Partitions", is_number=True),
                ),
                (_row(one, opened.get(one.transactional_id)) for one in page.rows),
                empty="No producer has used a transactional id yet.",
                search_label="Search transactional ids",
            ),
        ],
    )


async def transaction(request: PageRequest) -> PageView:
    """Return the page that shows one transactional id."""
    name = request.path["id"]
    found = await request.admin.describe_transaction(name)
    rows = tuple(
        (
            code(at.topic, open_address(at.topic)),
            count(at.partition),
        )
        for at in sorted(found.partitions)[:PARTITIONS_MAX]
    )
    end = None if found.start_ms is None else found.start_ms + found.timeout_ms
    return sheet_view(
        name,
        [
            FactsPart(
                facts=(
                    ("State", badge(found.state, TONES.get(found.state, "neutral"))),
                    ("Producer id", count(found.producer_id)),
                    ("Producer epoch", count(found.producer_epoch)),
                    ("Coordinator", count(int(found.coordinator))),
                    ("Open since", when(found.start_ms)),
                    ("Timeout", milliseconds(found.timeout_ms)),
                    ("The coordinator aborts it at", when(end)),
                )
            ),
            TablePart(
                title="Partitions of the transaction",
                columns=(Column(title="Topic"), Column(title="Partition", is_number=True)),
                rows=rows,
                empty="No transaction is open.",
            ),
        ],
    )


async def of_topic(request: PageRequest) -> PageView:
    """Return the page with the open transactions of a topic, as reported by the leaders of its
    partitions."""
    topic = request.path["topic"]
    described = await request.admin.describe_topic(topic)
    led = [one.partition for one in described.partitions if one.leader is not None]
    places = [TopicPartition(topic, index) for index in led[:PARTITIONS_MAX]]
    needs = NeededRight(operation="read", resource="topic", name=topic)
    producers = await attempt("open transactions", request.admin.describe_producers(places), needs)
    parts: list[SheetPart] = [_links(topic)]
    if isinstance(producers, Absence):
        return sheet_view(f"Transactions in {topic}", [*parts, producers.part(request.user)])
    found = list(open_transactions(producers))
    owners = await attempt("coordinators", owners_of(request.admin, found), LISTS)
    if isinstance(owners, Absence):
        # Without the coordinators, no transaction may be called hanging.
        parts.append(owners.part(request.user))
        hanging: list[OpenTransaction] = []
        known: dict[ProducerId, list[TransactionDescription]] = {}
    else:
        known, hanging = owners, hanging_of(found, owners)
    lost = {(one.at, one.producer.producer_id) for one in hanging}
    everything = [(at, one) for at, active in producers.items() for one in active]
    page = listing(
        everything,
        request.query,
        text_of=lambda row: f"{row[0]} {row[1].producer_id}",
        sorts={
            # Open transactions first.
            "partition": lambda row: (row[1].transaction_start is None, row[0], row[1].producer_id),
            "write": lambda row: row[1].last_timestamp_ms,
        },
    )
    parts.append(
        listed(
            "Producers",
            page,
            (
                Column(title="Partition", key="partition"),
                Column(title="Open from offset", is_number=True),
                Column(title="Producer id", is_number=True),
                Column(title="Epoch", is_number=True),
                Column(title="Last sequence", is_number=True),
                Column(title="Last write", key="write"),
                Column(title="Transactional id"),
                Column(title="State"),
            ),
            (_producer_row(at, one, lost, known) for at, one in page.rows),
            empty="No producer with a sequence has written to this topic recently.",
            search_label="Search producers",
        )
    )
    if not found:
        parts.append(NotePart(text="No transaction is open: readers wait for none.", tone="good"))
    parts += [_abort_form(one) for one in hanging[:DETAILS_MAX]]
    return sheet_view(
        f"Transactions in {topic}",
        parts,
        lead="Readers of committed records wait at the first offset of an open transaction.",
    )


async def abort(request: PageRequest) -> PageView:
    """Abort a hanging transaction in one partition. Returns a redirect to the open transactions of
    the topic. Refuses the abort if a transaction coordinator knows the transaction."""
    topic = request.path["topic"]
    at = TopicPartition(topic, _number(request.path["partition"]))
    start = _number(request.path["start"])
    found = await request.admin.describe_producers([at])
    chosen = [one for one in open_transactions(found) if one.start == start]
    if not chosen:
        raise RefusedError(
            ErrorCode.INVALID_TXN_STATE, f"no transaction is open in {at} from offset {start} on"
        )
    if not await without_coordinator(request.admin, chosen):
        raise RefusedError(
            ErrorCode.INVALID_TXN_STATE,
            f"the transaction in {at} from offset {start} on is its coordinator's to end, which "
            "does so at its timeout",
        )
    await request.admin.abort_transaction(at, chosen[0].producer)
    return PageView(
        context={},
        location=open_address(topic),
        notice=f"The transaction in {at} from offset {start} on was aborted.",
    )


async def _listed(admin: Admin, state: str) -> tuple[list[TransactionListing], list[Absence]]:
    needs = LISTS
    found = await attempt(
        "transactional ids",
        admin.list_transactions(states=[state] if state else []),
        needs,
        timeout_s=BROKER_S,
    )
    return ([], [found]) if isinstance(found, Absence) else (found, [])


async def _details(
    admin: Admin, rows: tuple[TransactionListing, ...]
) -> dict[str, TransactionDescription]:
    """Return the coordinators' descriptions of the open transactions among the rows of a page, by
    transactional id."""
    found: dict[str, TransactionDescription] = {}
    limit = trio.CapacityLimiter(DETAILS_AT_ONCE)

    async def ask(name: str) -> None:
        async with limit:
            try:
                found[name] = await admin.describe_transaction(name)
            except OttlaError:
                return  # It was finished meanwhile, or may not be described.

    with trio.move_on_after(BROKER_S):
        async with trio.open_nursery() as nursery:
            for one in rows[:DETAILS_MAX]:
                if one.state in OPEN_STATES:
                    nursery.start_soon(ask, one.transactional_id)
    return found


def _row(one: TransactionListing, found: TransactionDescription | None) -> tuple[Cell, ...]:
    return (
        code(one.transactional_id, transaction_address(one.transactional_id)),
        badge(one.state, TONES.get(one.state, "neutral")),
        count(one.producer_id),
        count(int(one.coordinator)),
        when(None if found is None else found.start_ms),
        milliseconds(None if found is None else found.timeout_ms),
        count(None if found is None else len(found.partitions)),
    )


def _producer_row(
    at: TopicPartition,
    one: ActiveProducer,
    lost: set[tuple[TopicPartition, ProducerId]],
    owners: Mapping[ProducerId, list[TransactionDescription]],
) -> tuple[Cell, ...]:
    owner = next((each for each in owners.get(one.producer_id, ()) if at in each.partitions), None)
    state = badge("no transaction", "good")
    if (at, one.producer_id) in lost:
        state = badge("open, and no coordinator knows it", "bad")
    elif one.transaction_start is not None:
        state = badge("open", "warning")
    name = None if owner is None else owner.transactional_id
    return (
        code(at),
        count(one.transaction_start),
        count(one.producer_id),
        count(one.producer_epoch),
        count(one.last_sequence if one.last_sequence >= 0 else None),
        when(one.last_timestamp_ms),
        code(name, "" if name is None else transaction_address(name)),
        state,
    )


def _abort_form(one: OpenTransaction) -> FormPart:
    values = {
        "topic": one.at.topic,
        "partition": str(one.at.partition),
        "start": str(int(one.start)),
    }
    return FormPart(
        title=f"Abort the transaction in {one.at} from offset {one.start} on",
        button="Abort",
        action="transaction-abort",
        values=values,
        hint="Its records will never be read by readers of committed records.",
    )


def _links(topic: str) -> LinksPart:
    return LinksPart(
        links=(
            ("Topic", topic_address(topic)),
            ("All transactions", "/transactions"),
            ("Why do readers wait?", address("/explain/transaction", {}, {"topic": topic})),
        )
    )


def _topic_form() -> FormPart:
    return FormPart(
        title="Open and hanging transactions of a topic",
        button="Find",
        href="/find-transactions",
        fields=(FormField(name="topic", label="Topic", is_required=True),),
    )


async def find(request: PageRequest) -> PageView:
    """Return a redirect to the open transactions of the topic in the query. If the query names no
    topic, return a page with a form for the topic."""
    topic = request.query.get("topic", "").strip()
    if topic:
        return PageView(context={}, location=open_address(topic))
    return sheet_view("Open transactions", [_topic_form(), NotePart(text="Give a topic.")])


def _number(value: str) -> int:
    found = number_in(value, digits_max=18)
    if found is None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"{value[:40]!r} is no number")
    return found


PAGES = (
    Page(
        name="transactions",
        path="/transactions",
        title="Transactions",
        command="ottla txn list",
        view=transactions,
        section="Data",
        key="x",
    ),
    Page(
        name="transaction",
        path="/transactions/{id}",
        title="Transaction",
        command="ottla txn describe {id}",
        view=transaction,
    ),
    Page(
        name="find-transactions",
        path="/find-transactions",
        title="Open transactions",
        command="ottla txn find-hanging",
        view=find,
    ),
    Page(
        name="topic-transactions",
        path="/transactions-of/{topic}",
        title="Open transactions",
        command="ottla txn find-hanging {topic}",
        covers=("ottla txn producers",),
        view=of_topic,
        actions=(
            Action(
                name="transaction-abort",
                path="/transactions-of/{topic}/{partition}/{start}/abort",
                command="ottla txn abort {partition} --start-offset {offset}",
                run=abort,
                role=UserRole.ADMIN,
                confirms="topic",
            ),
        ),
    ),
)
