"""Page of the changes of one broker: cordon, drain, removal and deletion of its registration. Each
change has a preview."""

from collections.abc import Awaitable, Mapping
from http import HTTPStatus

from ottla.client.admin import Admin
from ottla.console.absences import CLUSTER_DESCRIBE, Absence, attempt
from ottla.console.form_values import form_number
from ottla.console.http_errors import PageError
from ottla.console.links import address
from ottla.console.page_types import Action, Page, PageRequest, PageView, UserRole
from ottla.console.sheets import (
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
    sheet_view,
    size,
    text,
)
from ottla.console.views.brokers import broker_id_of
from ottla.console.views.groups.group_parts import topic_address
from ottla.console.views.long_actions import running_notes, start_long
from ottla.insight.changes.broker_registrations_driver import check_unregister, unregister_broker
from ottla.insight.changes.broker_removal_driver import remove_broker
from ottla.insight.changes.cordon_driver import cordon_broker
from ottla.insight.changes.drain_driver import check_drain, drain_brokers
from ottla.insight.changes.progress import Report
from ottla.insight.facts.removal_driver import removal_of
from ottla.insight.facts.survey_driver import (
    DRAINS,
    SurveyedBroker,
    brokers_of,
    counts_of,
    partitions_of,
)
from ottla.insight.rules.health import broker_standing, shown_standing
from ottla.insight.rules.plan import plan_text
from ottla.model.amounts import counted
from ottla.model.errors import ConfigError, OttlaError, RefusedError

DEFAULT_RATE = 20_000_000
RATE_DIGITS_MAX = 15
MOVES_MAX = 100
PATH = "/brokers/{broker}/changes"
NO_AND_YES = (("", "no"), ("yes", "yes"))


async def changes(request: PageRequest) -> PageView:
    """Return the page with the changes of one broker."""
    one = await _broker(request)
    parts: list[SheetPart] = [
        _links(one.id),
        *running_notes(request, changes_address(one.id)),
        await _facts(request.admin, one),
        _cordon(one),
        *await _drain(request, one),
        *await _removal(request, one),
        *await _unregistration(request, one),
    ]
    return sheet_view(f"Changes of broker {one.id}", parts)


def changes_address(broker: int) -> str:
    """Return the address of the page with the changes of a broker."""
    return address(PATH, {"broker": str(broker)})


async def cordon(request: PageRequest) -> PageView:
    """Cordon a broker, so that no new replicas are placed on it. Returns a redirect to the page
    with the changes of the broker."""
    broker = broker_id_of(request.path["broker"])
    await cordon_broker(request.admin, broker, is_cordoned=True)
    return _done(broker, f"Broker {broker} gets no new replicas; it keeps those that it has.")


async def uncordon(request: PageRequest) -> PageView:
    """End the cordon of a broker, so that new replicas may be placed on it again. Returns a
    redirect to the page with the changes of the broker."""
    broker = broker_id_of(request.path["broker"])
    await cordon_broker(request.admin, broker, is_cordoned=False)
    return _done(broker, f"Broker {broker} gets new replicas again.")


async def drain(request: PageRequest) -> PageView:
    """Start the drain of a broker, which moves its leaderships to other brokers. Returns a redirect
    to the progress page of this background action."""
    one = await _broker(request)
    if request.form.get("force", "") != "yes":
        await check_drain(request.admin, [one])

    async def work(admin: Admin, report: Report) -> str:
        report(f"broker {one.id} moves its leaderships to others")
        await drain_brokers(admin, [one], undo=False)
        return f"broker {one.id} is drained: it leads nothing until it starts again"

    return start_long(
        request,
        work,
        title=f"Drain broker {one.id}",
        about=changes_address(one.id),
        command=f"ottla broker drain {one.id}",
    )


async def undrain(request: PageRequest) -> PageView:
    """Allow a drained broker to lead partitions again. Returns a redirect to the page with the
    changes of the broker."""
    one = await _broker(request)
    await drain_brokers(request.admin, [one], undo=True)
    return _done(one.id, f"Broker {one.id} may lead partitions again.")


async def remove(request: PageRequest) -> PageView:
    """Start the removal of a broker: moves of its replicas, a wait for its stop, and the deletion
    of its registration. Returns a redirect to the progress page of this background action."""
    broker = broker_id_of(request.path["broker"])
    throttle = _rate(request.form)
    await removal_of(request.admin, broker, throttle)

    async def work(admin: Admin, report: Report) -> str:
        result = await remove_broker(admin, broker, report, throttle=throttle)
        if not result.is_removed:
            return (
                f"broker {broker} holds no replica, and still runs; stop it, then remove it again"
            )
        moved = counted(result.moved_count, "partition")
        return f"broker {broker} is removed, {moved} moved; {result.left}".removesuffix("; ")

    return start_long(
        request,
        work,
        title=f"Remove broker {broker}",
        about=changes_address(broker),
        command=f"ottla broker remove {broker} --throttle {throttle}",
    )


async def unregister(request: PageRequest) -> PageView:
    """Delete the registration of a stopped broker without replicas. Returns a redirect to the list
    of brokers."""
    broker = broker_id_of(request.path["broker"])
    await check_unregister(request.admin, broker)
    left = await unregister_broker(request.admin, broker)
    notice = f"Broker {broker} is unregistered."
    return PageView(
        context={}, location="/brokers", notice=f"{notice} But {left}." if left else notice
    )


async def _broker(request: PageRequest) -> SurveyedBroker:
    broker = broker_id_of(request.path["broker"])
    for one in await brokers_of(request.admin, only=broker):
        return one
    raise PageError(HTTPStatus.NOT_FOUND, f"there is no broker {broker} in this cluster")


def _done(broker: int, notice: str) -> PageView:
    return PageView(context={}, location=changes_address(broker), notice=notice)


async def _facts(admin: Admin, one: SurveyedBroker) -> FactsPart:
    counts = counts_of(one, partitions_of(await admin.cluster.metadata()))
    state = shown_standing(broker_standing(one), one.is_cordoned)
    return FactsPart(
        facts=(
            ("State", badge(state)),
            ("Partitions that it leads", count(counts["leaders"])),
            ("Replicas", count(counts["replicas"])),
        )
    )


def _cordon(one: SurveyedBroker) -> FormPart:
    values = {"broker": str(one.id)}
    if one.is_cordoned:
        return FormPart(
            title="End the cordon",
            button="Let it get new replicas",
            action="broker-uncordon",
            values=values,
            hint="New topics and balances place no replicas on this broker now.",
        )
    return FormPart(
        title="Cordon",
        button="Give it no new replicas",
        action="broker-cordon",
        values=values,
        hint="New topics and balances then place no replicas on it. It keeps those that it has.",
    )


async def _drain(request: PageRequest, one: SurveyedBroker) -> list[SheetPart]:
    values = {"broker": str(one.id)}
    if one.state in DRAINS:
        return [
            FormPart(
                title="End the drain",
                button="Let it lead again",
                action="broker-undrain",
                values=values,
                hint="It leads no partition now, and keeps its replicas.",
            )
        ]
    found = await _refusal(check_drain(request.admin, [one]))
    form = FormPart(
        title="Drain",
        button="Move its leaderships to others",
        action="broker-drain",
        values=values,
        hint="It then leads no partition until it starts again, and keeps its replicas.",
    )
    if not found:
        return [form]
    force = FormField(
        name="force",
        label="Drain it although partitions are left without a leader",
        type="select",
        options=NO_AND_YES,
    )
    warning = NotePart(text=f"Drain: {found}", tone="warning")
    return [
        warning,
        FormPart(
            title=form.title,
            button=form.button,
            action=form.action,
            values=values,
            hint=form.hint,
            fields=(force,),
        ),
    ]


async def _removal(request: PageRequest, one: SurveyedBroker) -> list[SheetPart]:
    given = request.query.get("throttle", "")
    rate = FormField(
        name="throttle",
        label="Highest rate of the moves, in bytes per second to and from each broker",
        type="number",
        value=given or str(DEFAULT_RATE),
        is_required=True,
    )
    parts: list[SheetPart] = [
        FormPart(
            title="Remove",
            button="Show the moves (dry run)",
            href=changes_address(one.id),
            fields=(rate,),
            hint="Its replicas move to other brokers. It must be stopped then, and its "
            "registration is deleted.",
        )
    ]
    if not given:
        return parts
    try:
        throttle = _rate(request.query)
    except ConfigError as error:
        return [*parts, NotePart(text=str(error), tone="bad")]
    found = await attempt(
        "moves", removal_of(request.admin, one.id, throttle), CLUSTER_DESCRIBE, timeout_s=20.0
    )
    if isinstance(found, Absence):
        return [*parts, found.part(request.user)]
    moves = found.plan.moves
    table = TablePart(
        title="Moves that empty the broker"
        if len(moves) <= MOVES_MAX
        else f"The first {MOVES_MAX} of {len(moves):,} moves that empty the broker",
        columns=(
            Column(title="Topic"),
            Column(title="Partition", is_number=True),
            Column(title="Replicas now"),
            Column(title="Replicas then"),
            Column(title="Copied", is_number=True),
        ),
        rows=tuple(
            (
                code(move.at.topic, topic_address(move.at.topic)),
                count(move.at.partition),
                text(", ".join(map(str, move.before))),
                text(", ".join(map(str, move.after))),
                size(move.copied_bytes),
            )
            for move in moves[:MOVES_MAX]
        ),
        empty="No replica has to move.",
    )
    return [
        *parts,
        table,
        NotePart(text=plan_text(found.plan, throttle)),
        FormPart(
            title="Make these moves and remove the broker",
            button="Move its replicas and remove it",
            action="broker-remove",
            values={"broker": str(one.id)},
            fields=(FormField(name="throttle", label="", type="hidden", value=str(throttle)),),
            hint="The moves go on if this is cancelled; the page of moves cancels them.",
        ),
    ]


async def _unregistration(request: PageRequest, one: SurveyedBroker) -> list[SheetPart]:
    found = await _refusal(check_unregister(request.admin, one.id))
    if found:
        return [NotePart(text=f"Delete the registration: {found}")]
    return [
        FormPart(
            title="Delete the registration",
            button="Delete the registration",
            action="broker-unregister",
            values={"broker": str(one.id)},
            hint="The broker has stopped, and holds no replica.",
        )
    ]


async def _refusal(check: Awaitable[None]) -> str:
    """Return the reason why a check refuses a change, or an empty text if the check allows it."""
    try:
        await check
    except RefusedError as refusal:
        return refusal.message
    except OttlaError as error:
        return str(error)
    return ""


def _rate(fields: Mapping[str, str]) -> int:
    given = fields.get("throttle", "")
    return form_number("throttle", given, least=1, digits_max=RATE_DIGITS_MAX)


def _links(broker: int) -> LinksPart:
    values = {"broker": str(broker)}
    return LinksPart(
        links=(
            ("Broker", address("/brokers/{broker}", values)),
            ("Changes", changes_address(broker)),
            ("Moves", "/moves"),
        ),
        current="Changes",
    )


PAGES = (
    Page(
        name="broker-changes",
        path=PATH,
        title="Changes of a broker",
        command="ottla broker remove {broker} --dry-run",
        view=changes,
        actions=(
            Action(
                name="broker-cordon",
                path="/brokers/{broker}/cordon",
                command="ottla broker cordon {broker}",
                run=cordon,
            ),
            Action(
                name="broker-uncordon",
                path="/brokers/{broker}/uncordon",
                command="ottla broker cordon {broker} --undo",
                run=uncordon,
            ),
            Action(
                name="broker-drain",
                path="/brokers/{broker}/drain",
                command="ottla broker drain {broker}",
                run=drain,
                confirms="broker",
            ),
            Action(
                name="broker-undrain",
                path="/brokers/{broker}/undrain",
                command="ottla broker drain {broker} --undo",
                run=undrain,
            ),
            Action(
                name="broker-remove",
                path="/brokers/{broker}/remove",
                command="ottla broker remove {broker}",
                run=remove,
                role=UserRole.ADMIN,
                confirms="broker",
            ),
            Action(
                name="broker-unregister",
                path="/brokers/{broker}/unregister",
                command="ottla broker unregister {broker}",
                run=unregister,
                role=UserRole.ADMIN,
                confirms="broker",
            ),
        ),
    ),
)
