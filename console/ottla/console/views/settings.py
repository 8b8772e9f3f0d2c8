"""Page with a reference of settings: each setting with its default, its allowed values and its
meaning. It needs no cluster."""

from functools import cache

from ottla.console.listing import listing
from ottla.console.page_types import Page, PageRequest, PageView
from ottla.console.sheets import Column, code, listed, sheet_view, text
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.client import ConsumerConfig, ProducerConfig
from ottla.model.settings.connections import ConnectionConfig
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.declare import Definition, definitions
from ottla.model.settings.dynamic import broker_definitions, definitions_of
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.security.authorizer import AuthorizerConfig
from ottla.model.settings.share_client import ShareConsumerConfig
from ottla.model.settings.storage.topic import TOPIC_DEFINITIONS
from ottla.model.values import frozen


@frozen(kw_only=True)
class ReferenceRow:
    """Table row about one setting of topics, brokers or other resources."""

    scope: str
    """Noun for the resources that have this setting, such as "topic"."""
    definition: Definition


@cache
def all_settings() -> tuple[ReferenceRow, ...]:
    """Return the rows of the settings reference, one for each setting, by scope (such as "topic")
    and key."""
    scopes = {
        "broker": {**definitions(BrokerConfig), **broker_definitions()},
        "controller": {
            **definitions(ControllerConfig),
            **definitions(ConnectionConfig),
            **definitions(AuthorizerConfig),
        },
        "topic": TOPIC_DEFINITIONS,
        "group": definitions_of(ConfigKind.GROUP),
        "client metrics": definitions_of(ConfigKind.CLIENT_METRICS),
        "producer": definitions(ProducerConfig),
        "consumer": definitions(ConsumerConfig),
        "share consumer": definitions(ShareConsumerConfig),
    }
    return tuple(
        ReferenceRow(scope=scope, definition=one)
        for scope, found in scopes.items()
        for _, one in sorted(found.items())
    )


async def settings(request: PageRequest) -> PageView:
    """Return the page that shows the reference of the settings that match the search."""
    page = listing(
        all_settings(),
        request.query,
        text_of=lambda one: f"{one.definition.key} {one.scope} {one.definition.documentation}",
        sorts={
            "key": lambda one: (one.definition.key, one.scope),
            "scope": lambda one: (one.scope, one.definition.key),
        },
    )
    return sheet_view(
        "Settings reference",
        [
            listed(
                "Settings",
                page,
                (
                    Column(title="Key", key="key"),
                    Column(title="Of", key="scope"),
                    Column(title="Default"),
                    Column(title="Allowed"),
                    Column(title="Meaning"),
                    Column(title="Change"),
                ),
                (
                    (
                        code(one.definition.key),
                        text(one.scope),
                        code(one.definition.default),
                        text(one.definition.allowed()),
                        text(one.definition.documentation),
                        text(_change_of(one)),
                    )
                    for one in page.rows
                ),
                empty="There are no settings.",
                search_label="Search settings",
            )
        ],
        lead="Keys, units and defaults are Kafka's; keys of Ottla's own begin with ottla.",
    )


def _change_of(row: ReferenceRow) -> str:
    if row.scope in ("topic", "group", "client metrics"):
        return "at any time"
    if row.scope in ("broker", "controller"):
        return "while the node runs" if row.definition.is_dynamic else "with a restart"
    return "in the client's code"


PAGES = (
    Page(
        name="settings",
        path="/settings",
        title="Settings reference",
        command="ottla config get --broker 1",
        view=settings,
        section="Operations",
        key="r",
    ),
)
