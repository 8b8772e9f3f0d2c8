"""Types of the console's pages: the row of a page in PAGES, its request, its view and its actions.

A view is an async function from a `PageRequest` to a `PageView`. It does not depend on HTTP. A test
can therefore call the view with an admin client, and check the template's context.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from enum import IntEnum
from typing import Protocol, TypeAlias

from ottla.client.admin import Admin
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.console.long_actions_driver import LongActions
from ottla.model.settings.client import ConsumerConfig, ProducerConfig
from ottla.model.values import frozen


class UserRole(IntEnum):
    """Role of a user in the console. A higher role has all permissions of the lower roles.

    The cluster's ACLs apply in addition: a request has the permissions of the signed-in user.
    """

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


@frozen(kw_only=True)
class ConsoleConfig:
    """Settings of the console that its pages use."""

    hides_messages: bool = False
    """True if the console must not show keys, values and headers of records."""
    registry_url: str = ""
    """Base URL of the schema registry that decodes records. Empty if the console has no
    registry."""
    schema_files: tuple[str, ...] = ()
    """Paths of the files with Avro and Protobuf schemas on the console's machine."""
    report_folders: tuple[str, ...] = ()
    """Directories with reports of `ottla jepsen` and `ottla world`."""


class OpenAdmin(Protocol):
    """Function that opens a further admin client with the permissions of the signed-in user, for an
    action that continues after the user's session."""

    def __call__(self) -> AbstractAsyncContextManager[Admin]:
        """Return an async context manager that opens an admin client."""
        ...


class OpenConsumer(Protocol):
    """Function that opens a consumer with the permissions of the signed-in user."""

    def __call__(
        self, config: ConsumerConfig | None = None
    ) -> AbstractAsyncContextManager[Consumer]:
        """Return an async context manager that opens a consumer. The user's login replaces the
        login in `config`."""
        ...


class OpenProducer(Protocol):
    """Function that opens a producer with the permissions of the signed-in user."""

    def __call__(
        self, config: ProducerConfig | None = None
    ) -> AbstractAsyncContextManager[Producer]:
        """Return an async context manager that opens a producer. The user's login replaces the
        login in `config`."""
        ...


@frozen(kw_only=True)
class PageRequest:
    """Request for a page, an action or a live part. Its size and contents were already checked."""

    admin: Admin
    """Admin client with the permissions of the signed-in user."""
    open_admin: OpenAdmin
    open_consumer: OpenConsumer
    open_producer: OpenProducer
    long_actions: LongActions
    """The console's actions that run in the background."""
    user: str = ""
    """Name of the signed-in user. Empty if the console has no login."""
    role: UserRole = UserRole.VIEWER
    path: Mapping[str, str]
    """Values of the parameters in the path of the request, such as `topic`, decoded."""
    query: Mapping[str, str]
    """Query parameters of the request (after the question mark). If a name occurs several times,
    the last value applies."""
    form: Mapping[str, str]
    """Fields of the form that the browser posted. Empty for a page."""
    now_ms: int
    """Time of the request by the wall clock, in ms since 1970."""
    config: ConsoleConfig

    @property
    def hides_messages(self) -> bool:
        """True if the console must not show keys, values and headers of records."""
        return self.config.hides_messages


@frozen(kw_only=True)
class Download:
    """File that the browser gets for download in place of a page."""

    name: str
    """Name that the browser suggests for the downloaded file."""
    content: bytes
    content_type: str = "application/octet-stream"


@frozen(kw_only=True)
class PageView:
    """Result of a view (the function that computes a page) or of an action."""

    context: Mapping[str, object]
    """Values that the page's template reads. A missing value is an error in the template."""
    template: str = ""
    """Name of the template without `.html`. Empty for the template with the page's name."""
    status: int = 200
    location: str = ""
    """Address that the browser opens next, in place of a page. Actions return an address (see
    `links`), so that reloading the page does not repeat the action."""
    download: Download | None = None
    """File that is sent to the browser in place of a page, or None for a page."""
    notice: str = ""
    """Sentence that the session's next page shows, such as "topic orders was created". Empty if the
    next page shows no sentence."""


ViewFunction: TypeAlias = Callable[[PageRequest], Awaitable[PageView]]
LiveFunction: TypeAlias = Callable[[PageRequest], AsyncGenerator[PageView, None]]


@frozen(kw_only=True)
class Action:
    """A change of the cluster, by a form of a page.

    The form has a token of the session, and each action writes an audit line. A page shows the
    reason if the action is refused; otherwise, the browser opens the address that the action
    returns.
    """

    name: str
    """Name of the action for `action_form` in templates, unique among all pages."""
    path: str
    """Path to which the action's form is posted, such as `/topics/{topic}/delete`."""
    command: str
    """Command of `ottla` that makes the same change, such as `ottla topic delete`."""
    run: ViewFunction
    role: UserRole = UserRole.OPERATOR
    confirms: str = ""
    """Parameter of the action's path whose value the user must type into the form's field
    `confirm`. Empty if the action is not destructive."""


@frozen(kw_only=True)
class Live:
    """Part of a page that is updated by server-sent events, for `data-live` in templates.

    A page has at most one live part, because browsers open six connections to a server. The first
    response of the page already contains the part, so the page is complete without the stream.
    """

    name: str
    """Name of the live part for `live` in templates, unique among all pages. It is also the name of
    the part's template, below `live/`."""
    path: str
    """Path of the live part's event stream, such as `/live/topics/{topic}`."""
    stream: LiveFunction
    """Function that yields one page view for each event of the live part. `every` of `live_views`
    creates this function from a page's view."""
    role: UserRole = UserRole.VIEWER


@frozen(kw_only=True)
class Page:
    """A screen of the console: one row of PAGES."""

    name: str
    """Unique name of the page. It is also the name of its template `templates/NAME.html`, and the
    key for `link`."""
    path: str
    """Path of the page, such as `/topics/{topic}`. Parameters are in braces, and each parameter is
    a whole segment."""
    title: str
    command: str
    """Command of `ottla` with the same content as the page, which the page shows, such as `ottla
    topic describe {topic}`. Parameters of the path and the query are in braces, and each is a whole
    word. Empty if no command has this content, for a reason in `tests/console/test_pages.py`."""
    view: ViewFunction
    covers: tuple[str, ...] = ()
    """Further commands of `ottla` whose output the page contains, such as `ottla group members`."""
    section: str = ""
    """Section of the navigation that contains the page: one of `SECTIONS`. Empty if the navigation
    does not contain the page."""
    key: str = ""
    """Letter that opens the page if it is typed after `g`. Empty if the page has no letter."""
    role: UserRole = UserRole.VIEWER
    """Lowest user role that may read the page."""
    actions: tuple[Action, ...] = ()
    lives: tuple[Live, ...] = ()


SECTIONS = ("Cluster", "Data", "Clients", "Security", "Operations")
"""Names of the sections of the console's navigation, in order."""
