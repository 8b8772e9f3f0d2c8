"""Explanations: a page for each question of `ottla explain`, with a form for its parameters."""

from collections.abc import Iterable
from functools import partial

from ottla.console.absences import Absence, NeededRight, attempt
from ottla.console.links import address
from ottla.console.listing import listing
from ottla.console.page_types import Page, PageRequest, PageView
from ottla.console.sheets import (
    Column,
    ExplanationPart,
    FormField,
    FormPart,
    LinksPart,
    NotePart,
    SheetPart,
    TablePart,
    code,
    listed,
    sheet_view,
    text,
)
from ottla.insight.answers import ANSWERS, Answer, Parameter
from ottla.insight.answers_driver import answer
from ottla.insight.explanation import NameArgument
from ottla.insight.explanation import command as command_of
from ottla.model.errors import ConfigError
from ottla.model.security.acls import WILDCARD, AclEntry, AclFilter, ResourceType

COVERED = {"denial": ("ottla acl explain",), "top": ("ottla top",)}
"""Additional commands whose output an explanation contains, by the name of the question."""
OFFERED_OPERATIONS = ("read", "write")
"""Operations that the page for a denial offers for each topic if only the user is known."""
READS_ACLS = NeededRight(operation="describe")
LISTS_TOPICS = NeededRight(operation="describe-configs")


def explain_address(name: str, **values: str) -> str:
    """Return the address of the page for a question of `ottla explain`, such as "lag", with values
    for its parameters."""
    return address(f"/explain/{name}", {}, values)


async def index(request: PageRequest) -> PageView:
    """Return the page that lists all questions of `ottla explain`."""
    rows = tuple(
        (
            text(one.name, explain_address(one.name)),
            text(one.summary.removeprefix("show ")),
            code(one.command),
        )
        for one in ANSWERS
    )
    columns = (Column(title="Question"), Column(title="It shows"), Column(title="Command"))
    return sheet_view(
        "Explain",
        [TablePart(title="Questions about the cluster", columns=columns, rows=rows)],
        lead="Each question names causes, their evidence, and the command that fixes them.",
    )


async def explain(asked: Answer, request: PageRequest) -> PageView:
    """Return the page for one question of `ottla explain`: its form, and the explanation if all
    required values are present."""
    values = {one.name: request.query.get(one.name, "").strip() for one in asked.parameters}
    parts: list[SheetPart] = [_links(asked)]
    if asked.parameters:
        parts.append(_form(asked, values))
    if all(values[one.name] for one in asked.parameters if one.is_required):
        try:
            found = await answer(request.admin, asked.name, values)
        except ConfigError as error:
            parts.append(NotePart(text=str(error), tone="bad"))
        else:
            parts.append(ExplanationPart(found=found, finding=asked.finding))
    elif asked.name == "denial" and values["user"]:
        parts.append(await _operations(request, values["user"]))
    elif any(values.values()):
        missing = [one.meaning for one in asked.parameters if one.is_required]
        parts.append(NotePart(text=f"Give the {' and the '.join(missing)}.", tone="warning"))
    return sheet_view(
        f"Explain: {asked.name}",
        parts,
        lead=f"{asked.summary[:1].upper()}{asked.summary[1:]}.",
        command=_command(asked, values),
    )


async def _operations(request: PageRequest, user: str) -> SheetPart:
    """Return a table of topics with a link for each operation that may be denied to a user. Topics
    whose names are similar to names in the user's ACLs are first."""
    wanted = AclFilter(resource_type=ResourceType.TOPIC)
    acls = await attempt("ACLs", request.admin.describe_acls(wanted), READS_ACLS)
    topics = await attempt("topics", request.admin.list_topic_names(), LISTS_TOPICS)
    if isinstance(topics, Absence):
        return topics.part(request.user)
    near = set() if isinstance(acls, Absence) else near_topics(user, topics, acls)
    page = listing(
        topics,
        request.query,
        text_of=lambda one: one,
        sorts={"near": lambda one: (one not in near, one)},
    )
    return listed(
        "Which operation is denied?",
        page,
        (Column(title="Topic"), *(Column(title=one.capitalize()) for one in OFFERED_OPERATIONS)),
        (
            (
                code(topic),
                *(
                    text(
                        f"{one} {topic}",
                        explain_address("denial", user=user, operation=one, topic=topic),
                    )
                    for one in OFFERED_OPERATIONS
                ),
            )
            for topic in page.rows
        ),
        empty="There is no topic that you may see.",
        search_label="Search topics",
    )


def near_topics(user: str, topics: list[str], acls: Iterable[AclEntry]) -> set[str]:
    """Return the topics whose name begins with a resource name in the user's ACLs. Such an ACL may
    deny an operation on the topic, or may have been intended to allow it."""
    principals = (f"User:{user}", f"User:{WILDCARD}")
    names = {
        one.resource_name
        for one in acls
        if one.principal in principals and one.resource_name != WILDCARD
    }
    lengths = {len(name) for name in names}
    return {topic for topic in topics if any(topic[:length] in names for length in lengths)}


def _links(asked: Answer) -> LinksPart:
    links = tuple((one.name, explain_address(one.name)) for one in ANSWERS)
    return LinksPart(links=(("all questions", "/explain"), *links), current=asked.name)


def _form(asked: Answer, values: dict[str, str]) -> FormPart:
    return FormPart(
        title="About",
        button="Explain",
        href=explain_address(asked.name),
        fields=tuple(_field(one, values[one.name]) for one in asked.parameters),
    )


def _field(one: Parameter, value: str) -> FormField:
    label = one.name.replace("_", " ")
    if one.choices:
        options = tuple((choice, choice) for choice in one.choices)
        first = () if one.is_required else (("", "any"),)
        return FormField(
            name=one.name, label=label, value=value, type="select", options=(*first, *options)
        )
    return FormField(
        name=one.name, label=label, value=value, hint=one.meaning, is_required=one.is_required
    )


def _command(asked: Answer, values: dict[str, str]) -> str:
    words: list[str] = []
    for one in asked.parameters:
        value = values[one.name]
        if one.is_required:
            words.append(NameArgument(value or one.name.upper()))
        elif value:
            words += [f"--{one.name.replace('_', '-')}", NameArgument(value)]
    return command_of("explain", asked.name, *words)


def _page_command(asked: Answer) -> str:
    """Return the command that the page for a question of `ottla explain` shows if its form is
    empty."""
    required = [one for one in asked.parameters if one.is_required]
    words = [one.choices[0] if one.choices else f"{{{one.name}}}" for one in required]
    return " ".join([asked.command, *words])


PAGES = (
    Page(
        name="explain",
        path="/explain",
        title="Explain",
        command="",
        view=index,
        section="Operations",
        key="e",
    ),
    *(
        Page(
            name=f"explain-{one.name}",
            path=f"/explain/{one.name}",
            title=f"Explain: {one.name}",
            command=_page_command(one),
            covers=COVERED.get(one.name, ()),
            view=partial(explain, one),
        )
        for one in ANSWERS
    ),
)
