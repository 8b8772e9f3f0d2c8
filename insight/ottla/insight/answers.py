"""The table of answers: questions about a cluster that `ottla explain` answers. Each has its
parameters, its command and its MCP tool. Pure.

The command line, the MCP server and the web pages are generated from this table, and offer the same
answers.
"""

from collections.abc import Mapping

from ottla.model.errors import ConfigError
from ottla.model.security.acls import AclOperation
from ottla.model.values import frozen

VALUE_CHARS_MAX = 32_767
"""Maximum length, in characters, of a parameter's value in a question of `ottla explain`: the
longest id of a group."""


@frozen(kw_only=True)
class Parameter:
    """One parameter of a question that `ottla explain` answers: an option or argument of the
    question's command, and of its MCP tool."""

    name: str
    """Name of the parameter with underscores, as in `client_id`."""
    meaning: str
    """Noun phrase that describes the parameter in help texts."""
    is_required: bool = False
    """True if the parameter is an argument of the command, False if it is an option."""
    choices: tuple[str, ...] = ()
    """Allowed values of the parameter. Empty if every value is allowed."""


@frozen(kw_only=True)
class Answer:
    """One question about a cluster that `ottla explain` answers."""

    name: str
    """Word by which all interfaces name the question, such as "lag"."""
    summary: str
    """Verb phrase that describes the question in help texts, such as "show why a group lags"."""
    parameters: tuple[Parameter, ...] = ()
    finding: str = "cause"
    """Noun for the reasons or steps in the answer to the question. Empty if it only shows
    tables."""

    @property
    def command(self) -> str:
        """Command that prints the answer to the question, without its arguments."""
        return f"ottla explain {self.name}"

    @property
    def tool(self) -> str:
        """Name of the MCP tool that returns the answer to the question."""
        return f"explain_{self.name}"


OPERATIONS = tuple(
    one.name.lower().replace("_", "-") for one in AclOperation if one > AclOperation.ALL
)
TOPIC = Parameter(name="topic", meaning="name of a topic (default: all topics)")
ANSWERS = (
    Answer(name="health", summary="show whether the cluster is healthy, and why not"),
    Answer(
        name="denial",
        summary="show why a user may not do an operation",
        parameters=(
            Parameter(name="user", meaning="name of the user", is_required=True),
            Parameter(
                name="operation",
                meaning="operation, such as read",
                is_required=True,
                choices=OPERATIONS,
            ),
            Parameter(name="topic", meaning="name of the topic (default: the cluster itself)"),
            Parameter(name="group", meaning="id of the group (default: none)"),
            Parameter(name="transactional_id", meaning="transactional id (default: none)"),
            Parameter(name="host", meaning="address of the client (default: 127.0.0.1)"),
        ),
    ),
    Answer(
        name="throttle",
        summary="show which limits slow down clients or replicas now",
        parameters=(
            Parameter(name="user", meaning="user of the client (default: every user)"),
            Parameter(name="client_id", meaning="client id (default: every client id)"),
            Parameter(name="ip", meaning="address of the client (default: every address)"),
        ),
    ),
    Answer(
        name="lag",
        summary="show why a group is behind",
        parameters=(Parameter(name="group", meaning="id of the group", is_required=True),),
    ),
    Answer(
        name="unavailable",
        summary="show why partitions cannot be read or written",
        parameters=(TOPIC,),
    ),
    Answer(
        name="rebalance",
        summary="show why a group's assignment is not finished",
        parameters=(Parameter(name="group", meaning="id of the group", is_required=True),),
    ),
    Answer(
        name="slow",
        summary="show why requests are slow",
        parameters=(TOPIC,),
    ),
    Answer(
        name="disk",
        summary="show why log directories are full or offline",
        parameters=(Parameter(name="broker", meaning="id of a broker (default: all brokers)"),),
    ),
    Answer(
        name="transaction",
        summary="show which open transactions hold up readers",
        parameters=(Parameter(name="topic", meaning="name of the topic", is_required=True),),
    ),
    Answer(
        name="delivery",
        summary="show why a share group's records are not delivered",
        parameters=(Parameter(name="group", meaning="id of the share group", is_required=True),),
    ),
    Answer(
        name="top",
        summary="show the busiest clients, topics, partitions and brokers",
        parameters=(
            Parameter(
                name="by",
                meaning="measure by which rows are sorted (default: bytes)",
                choices=("bytes", "requests"),
            ),
        ),
        finding="",
    ),
    Answer(
        name="plan",
        summary="show the steps of a change of the cluster, without carrying it out",
        parameters=(
            Parameter(
                name="change",
                meaning="the change to plan",
                is_required=True,
                choices=("balance", "remove-broker", "drain-broker", "add-voter", "remove-voter"),
            ),
            Parameter(name="broker", meaning="id of the broker to remove or drain"),
            Parameter(name="controller", meaning="id of the controller to add or remove"),
        ),
        finding="step",
    ),
)


def answer_of(name: str) -> Answer:
    """Return the entry for the question with this name in the table of answers. Raises KeyError if
    the name is unknown."""
    return _BY_NAME[name]


_BY_NAME = {one.name: one for one in ANSWERS}


def checked(answer: Answer, values: Mapping[str, str | None]) -> dict[str, str]:
    """Check the given values of a question's parameters, by parameter name. Returns the values that
    are neither None nor empty.

    Raises ConfigError if a parameter is unknown, missing, too long or not among its choices.
    """
    known = {one.name: one for one in answer.parameters}
    found = {name: value for name, value in values.items() if value}
    for name, value in found.items():
        if name not in known:
            names = ", ".join(known) or "none"
            raise ConfigError(name, f"is no parameter of {answer.name}; its parameters: {names}")
        if len(value) > VALUE_CHARS_MAX:
            raise ConfigError(name, f"is longer than {VALUE_CHARS_MAX} characters")
        choices = known[name].choices
        if choices and value not in choices:
            raise ConfigError(name, f"is {value!r}; it must be one of {', '.join(choices)}")
    for one in answer.parameters:
        if one.is_required and one.name not in found:
            raise ConfigError(one.name, f"is missing; give the {one.meaning}")
    return found
