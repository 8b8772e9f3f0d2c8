"""Page for changes of the controller quorum's voters: additions, removals and replacements. The
page shows the steps of each change before it is made."""

import shlex
from collections.abc import Mapping

from ottla.client.admin import Admin
from ottla.console.page_types import Action, Page, PageRequest, PageView, UserRole
from ottla.console.sheets import (
    Column,
    FormField,
    FormPart,
    NotePart,
    SheetPart,
    TablePart,
    code,
    count,
    sheet_view,
    text,
)
from ottla.console.views.long_actions import running_notes, start_long
from ottla.console.views.quorum import quorum_links, voters_table
from ottla.insight.changes.controller_registrations_driver import (
    check_controller_gone,
    unregister_controller,
)
from ottla.insight.changes.progress import Report
from ottla.insight.changes.voter_changes_driver import (
    TIMEOUT_S,
    change_voters,
    check_additions,
    described_quorum,
)
from ottla.insight.changes.voter_plans import (
    VoterPlan,
    parse_voter,
    plan_addition,
    plan_removal,
    plan_replacement,
)
from ottla.insight.facts.survey_driver import SurveyedQuorum
from ottla.model.errors import ConfigError, RefusedError
from ottla.model.ids import NodeId, parse_node_id

PATH = "/quorum/voters"
CONTROLLER_HINT = "ID@HOST:PORT:DIRECTORY; the tables show ids and directories"
OBSERVERS_MAX = 100
NO_AND_YES = (("", "no"), ("yes", "yes"))


async def voters(request: PageRequest) -> PageView:
    """Return the page for changes of the voters, with forms and the steps of the chosen change."""
    parts: list[SheetPart] = [quorum_links("Change voters"), *running_notes(request, PATH)]
    try:
        quorum = await described_quorum(request.admin)
    except RefusedError as refusal:
        return sheet_view("Change voters", [*parts, NotePart(text=refusal.message, tone="bad")])
    query, command = request.query, None
    if query.get("change"):
        try:
            plan = plan_of(quorum, query)
            parts += _preview(plan, query)
            command = _command(query)
        except (ConfigError, RefusedError) as error:
            said = error.message if isinstance(error, RefusedError) else str(error)
            parts.append(NotePart(text=said, tone="bad"))
    parts += [voters_table(quorum), _observers(quorum), *_forms(quorum, query)]
    return sheet_view("Change voters", parts, command=command)


def plan_of(quorum: SurveyedQuorum, fields: Mapping[str, str]) -> VoterPlan:
    """Return the plan for the change of voters that the fields of a form describe. Raises
    ConfigError if a field is invalid, and RefusedError if the quorum does not allow the change."""
    match fields.get("change", ""):
        case "add":
            return plan_addition(quorum, parse_voter("controller", fields.get("controller", "")))
        case "remove":
            return plan_removal(quorum, _node(fields))
        case "replace":
            text_of_new = fields.get("controller", "").strip()
            by = parse_voter("controller", text_of_new) if text_of_new else None
            return plan_replacement(
                quorum,
                _node(fields),
                by,
                fields.get("address", "").strip(),
                address_name="address",
            )
    raise ConfigError("change", "must be add, remove or replace")


async def add(request: PageRequest) -> PageView:
    """Start the addition of a controller to the voters. Returns a redirect to the page of the long
    action."""
    return await _change(request, "add")


async def remove(request: PageRequest) -> PageView:
    """Start the removal of a controller from the voters. Returns a redirect to the page of the long
    action."""
    return await _change(request, "remove")


async def replace(request: PageRequest) -> PageView:
    """Start the replacement of a voter. Returns a redirect to the page of the long action."""
    return await _change(request, "replace")


async def _change(request: PageRequest, kind: str) -> PageView:
    fields = {**request.form, **request.path, "change": kind}
    quorum = await described_quorum(request.admin)
    plan = plan_of(quorum, fields)
    # Only here: a preview, which any viewer may load, connects to no address of its query.
    await check_additions(quorum, plan)
    old = fields.get("node", "")
    unregisters = fields.get("unregister", "") == "yes" and bool(old)

    async def work(admin: Admin, report: Report) -> str:
        await change_voters(admin, plan, report, TIMEOUT_S)
        if unregisters and (kind == "remove" or str(plan.voter.id) != old):
            await unregister_controller(admin, int(old))
            report(f"the registration of controller {old} is deleted")
        return plan.result

    return start_long(
        request,
        work,
        title="Change the voters",
        about=PATH,
        command=_command(fields).removesuffix(" --dry-run"),
    )


async def unregister(request: PageRequest) -> PageView:
    """Delete the registration of a controller that was removed from the quorum. Returns a redirect
    to the page of the quorum's voters."""
    node = _node(request.form)
    running = await check_controller_gone(request.admin, node)
    await unregister_controller(request.admin, node)
    notice = f"The registration of controller {node} is deleted."
    return PageView(
        context={}, location=PATH, notice=f"{notice} But {running}." if running else notice
    )


def _node(fields: Mapping[str, str]) -> NodeId:
    given = fields.get("node", "").strip()
    node = parse_node_id(given)
    if node is None:
        raise ConfigError("node", f"is {given[:40]!r}; it must be a node id")
    return node


def _command(fields: Mapping[str, str]) -> str:
    kind, controller = fields["change"], fields.get("controller", "").strip()
    words = ["ottla", "quorum", kind, controller if kind == "add" else fields.get("node", "")]
    if kind == "replace" and controller:
        words += ["--by", controller]
    if kind == "replace" and fields.get("address", "").strip():
        words += ["--address", fields["address"].strip()]
    if kind != "add" and fields.get("unregister", "") == "yes":
        words.append("--unregister")
    return shlex.join([*words, "--dry-run"])


def _preview(plan: VoterPlan, query: Mapping[str, str]) -> list[SheetPart]:
    if not plan.steps:
        return [NotePart(text=plan.result, tone="good")]
    table = TablePart(
        title="Steps (dry run)",
        columns=(
            Column(title="Change"),
            Column(title="Node", is_number=True),
            Column(title="Directory"),
            Column(title="Address"),
        ),
        rows=tuple(
            (
                text(one.change),
                count(int(one.voter.id)),
                code(one.directory_id),
                code(one.address),
            )
            for one in plan.steps
        ),
    )
    kept = ("controller", "address", "unregister")
    fields = tuple(
        FormField(name=name, label="", type="hidden", value=query[name])
        for name in kept
        if query.get(name)
    )
    kind = query["change"]
    values = {} if kind == "add" else {"node": query.get("node", "").strip()}
    form = FormPart(
        title="Make this change",
        button="Make this change",
        action=f"voter-{kind}",
        values=values,
        fields=fields,
        hint=f"Afterwards, {plan.result}.",
    )
    return [table, form]


def _observers(quorum: SurveyedQuorum) -> TablePart:
    return TablePart(
        title="Nodes that follow the leader without a vote",
        columns=(
            Column(title="Node", is_number=True),
            Column(title="Directory"),
            Column(title="Lag in records", is_number=True),
        ),
        rows=tuple(
            (count(one.id), code(one.directory_id), count(one.lag))
            for one in quorum.observers[:OBSERVERS_MAX]
        ),
        empty="There are none: a controller follows the leader before it becomes a voter.",
    )


def _forms(quorum: SurveyedQuorum, query: Mapping[str, str]) -> list[SheetPart]:
    nodes = tuple((str(one.id), f"controller {one.id}") for one in quorum.voters)
    node = FormField(
        name="node", label="Voter", type="select", options=nodes, value=query.get("node", "")
    )
    unregister_field = FormField(
        name="unregister",
        label="Delete the registration of the old controller, too",
        type="select",
        options=NO_AND_YES,
        value=query.get("unregister", ""),
    )
    controller = FormField(
        name="controller",
        label="Controller",
        value=query.get("controller", ""),
        hint=CONTROLLER_HINT,
    )

    def form(kind: str, title: str, hint: str, *fields: FormField) -> FormPart:
        kept = FormField(name="change", label="", type="hidden", value=kind)
        return FormPart(
            title=title,
            button="Show the steps (dry run)",
            href=PATH,
            fields=(kept, *fields),
            hint=hint,
        )

    return [
        form(
            "add",
            "Add a voter",
            "The controller runs, and has caught up with the leader as an observer.",
            controller,
        ),
        form(
            "replace",
            "Replace a voter",
            "By another controller, or by the same one with a new directory if no other is given.",
            node,
            controller,
            FormField(
                name="address",
                label="Address of the same controller",
                value=query.get("address", ""),
                hint="HOST:PORT; empty: as before",
            ),
            unregister_field,
        ),
        form(
            "remove",
            "Remove a voter",
            "The quorum then tolerates fewer failures. Stop the controller afterwards.",
            node,
            unregister_field,
        ),
        FormPart(
            title="Delete the registration of a removed controller",
            button="Delete the registration",
            action="controller-unregister",
            fields=(FormField(name="node", label="Node id", type="number", is_required=True),),
        ),
    ]


PAGES = (
    Page(
        name="voters",
        path=PATH,
        title="Change voters",
        command="ottla quorum replicas",
        view=voters,
        actions=(
            Action(
                name="voter-add",
                path="/quorum/voters/add",
                command="ottla quorum add {controller}",
                run=add,
                role=UserRole.ADMIN,
            ),
            Action(
                name="voter-remove",
                path="/quorum/voters/{node}/remove",
                command="ottla quorum remove {node}",
                run=remove,
                role=UserRole.ADMIN,
                confirms="node",
            ),
            Action(
                name="voter-replace",
                path="/quorum/voters/{node}/replace",
                command="ottla quorum replace {node}",
                run=replace,
                role=UserRole.ADMIN,
                confirms="node",
            ),
            Action(
                name="controller-unregister",
                path="/quorum/unregister",
                command="ottla quorum unregister {node}",
                run=unregister,
                role=UserRole.ADMIN,
            ),
        ),
    ),
)
