"""`ottla config get|set|diff`: shows, changes and compares settings of topics, brokers, groups,
loggers and client metrics."""

import argparse
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from ottla.cli.common import CONNECTION, FORMAT, print_json
from ottla.cli.confirmation import confirm_in_loop
from ottla.cli.options import Declared, one_of, option
from ottla.cli.outcomes import show
from ottla.cli.tables import print_table
from ottla.cli.terminal import note
from ottla.cli.topics.change_arguments import CHANGE_OPTIONS
from ottla.cli.topics.config_changes import (
    OPTIONS,
    SOURCES,
    Entity,
    alter,
    as_json,
    default_of,
    parse_changes,
    settings_of,
    value_after,
)
from ottla.cli.verbs import Verb, run_admin, verb
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import ConfigEntry
from ottla.insight.rules.config_losses import losses_of
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.resources import ConfigKind, ConfigSource

ConfigBody = Callable[[Admin, argparse.Namespace, list[Entity]], Awaitable[int]]
CLUSTER = Entity(ConfigKind.BROKER, "")


async def get(admin: Admin, arguments: argparse.Namespace, entities: list[Entity]) -> int:
    """`ottla config get`: show the settings of one entity (a topic, broker, group, …). Returns the
    exit code."""
    (entity,) = entities
    keys: list[str] = arguments.keys
    found = await settings_of(admin, entity, keys or None)
    missing = [key for key in keys if key not in found]
    if keys or arguments.all:
        shown = found
    else:
        shown = {k: one for k, one in found.items() if one.source is not ConfigSource.DEFAULT}
    if arguments.format == "json":
        print_json([as_json(entity, key, one) for key, one in shown.items()])
    elif shown or not missing:
        print_table(
            ("KEY", "VALUE", "SOURCE"),
            [(key, _value(one), SOURCES.get(one.source, "-")) for key, one in shown.items()],
        )
    if missing:
        fault = f"{entity} has no setting {', '.join(missing)}"
        cure = f"see 'ottla config get {entity.option} --all'"
        if entity == CLUSTER:
            fault = f"{', '.join(missing)} is not set for the whole cluster"
            cure = "'ottla config get --broker ID KEY' tells what holds on a broker"
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"{fault}; {cure}")
    return 0


async def set_(admin: Admin, arguments: argparse.Namespace, entities: list[Entity]) -> int:
    """`ottla config set`: change settings of one entity, or only check the changes. The user has to
    confirm changes that delete records or put them at risk. Returns the exit code."""
    (entity,) = entities
    changes = parse_changes("KEY=VALUE", arguments.changes, arguments.unset)
    if entity.kind is ConfigKind.BROKER:
        _check_broker_keys(one.key for one in changes if one.change is not None)
    before = await settings_of(admin, entity, [change.key for change in changes])
    rows = [
        (change.key, _value(before.get(change.key)), value_after(entity, change, before))
        for change in changes
    ]
    losses = [] if arguments.dry_run else losses_of(rows)
    if losses and not await confirm_in_loop(arguments, f"{'; '.join(losses)}: change it?"):
        return 0
    refusals = await alter(admin, entities, changes, is_dry=arguments.dry_run)
    shown = [] if refusals else rows
    show(arguments, ("KEY", "WAS", "NOW"), shown, list(refusals.values()), command="config")
    if arguments.dry_run:
        note("nothing was changed (--dry-run)")
    return 0


def _check_broker_keys(keys: Iterable[str]) -> None:
    """Raise ConfigError for an unknown broker setting. This check is needed because brokers store
    unknown keys, as in Kafka."""
    # Imported late: only this command needs the declarations.
    from ottla.model.settings.dynamic import described_definitions, of_one_listener
    from ottla.model.settings.storage.topic import TOPIC_DEFINITIONS

    for key in keys:
        if key in described_definitions() or of_one_listener(key) is not None:
            continue
        cure = "see 'ottla config get --broker ID --all'"
        brokers = TOPIC_DEFINITIONS[key].broker_keys if key in TOPIC_DEFINITIONS else ()
        if brokers:
            cure = f"for all topics it is {brokers[0]}"
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {key}; {cure}")


async def diff(admin: Admin, arguments: argparse.Namespace, entities: list[Entity]) -> int:
    """`ottla config diff`: show an entity's settings that differ from the defaults, or from another
    entity. Returns the exit code."""
    found = [await settings_of(admin, entity) for entity in entities]
    if len(entities) == 2:
        _show_differences(arguments, entities, found)
        return 0
    (settings,) = found
    defaults = settings
    if entities == [CLUSTER] and settings:
        # The cluster-wide entity has no defaults of its own; any broker returns those of Kafka.
        broker = (await admin.cluster.metadata([])).brokers[0].node_id
        defaults = await settings_of(admin, Entity(ConfigKind.BROKER, str(broker)), list(settings))
    rows = []
    for key, one in settings.items():
        default = defaults[key].default if key in defaults else None
        if default is None:
            default = default_of(entities[0], key)
        if one.value != default:
            rows.append((key, _value(one), default, SOURCES.get(one.source, "-")))
    show(arguments, ("KEY", "VALUE", "DEFAULT", "SOURCE"), rows, command="config")
    return 0


def _show_differences(
    arguments: argparse.Namespace, entities: list[Entity], found: list[dict[str, ConfigEntry]]
) -> None:
    names = [entity.name for entity in entities]
    rows = [
        (key, *values)
        for key in sorted({*found[0], *found[1]})
        if (values := [_value(one.get(key)) for one in found])[0] != values[1]
    ]
    if arguments.format == "json":
        print_json([{"key": key, **dict(zip(names, both, strict=True))} for key, *both in rows])
    else:
        print_table(("KEY", *names), rows, are_headers_data=True)


def _entities(arguments: argparse.Namespace) -> list[Entity]:
    if arguments.cluster:
        return [CLUSTER]
    return [
        Entity(kind, str(name))
        for kind, option in OPTIONS.items()
        for name in getattr(arguments, option.replace("-", "_"))
    ]


def _value(setting: ConfigEntry | None) -> str | None:
    if setting is None:
        return None
    return "(hidden)" if setting.is_sensitive else setting.value


def _verb(name: str, summary: str, body: ConfigBody, *options: Declared) -> Verb:
    return verb(name, summary, partial(_run, body), *options, *CONNECTION, FORMAT)


def _run(body: ConfigBody, arguments: argparse.Namespace) -> int:
    """Run one verb of `ottla config` against the cluster, with the entities that its options name.
    Returns the exit code."""
    entities = _entities(arguments)
    if len(entities) > (2 if arguments.verb == "diff" else 1):
        raise ConfigError(
            f"--{OPTIONS[entities[0].kind]}",
            "names too many; 'diff' compares two, 'get' and 'set' take one",
        )
    return run_admin(lambda admin, arguments: body(admin, arguments, entities), arguments)


ENTITY = one_of(
    option("--topic NAME ...", "topic; may be repeated"),
    option("--broker ID ...", "node.id of a broker; may be repeated", type=int),
    option("--cluster", "settings of all brokers"),
    option("--group NAME ...", "group of consumers; may be repeated"),
    option("--client-metrics NAME ...", "subscription to metrics of clients; may be repeated"),
    option(
        "--loggers ID ...",
        "node.id of a broker, for its log levels; may be repeated",
        type=int,
    ),
    required=True,
)
VERBS = (
    _verb(
        "get",
        "show settings and their sources",
        get,
        option("keys KEY", "keys of settings (default: those that are set)", nargs="*"),
        option("--all", "show defaults too"),
        ENTITY,
    ),
    _verb(
        "set",
        "change settings; running brokers apply them at once",
        set_,
        option("changes KEY=VALUE", "setting; KEY+=VALUE and KEY-=VALUE change a list", nargs="*"),
        *CHANGE_OPTIONS,
        ENTITY,
    ),
    _verb(
        "diff",
        "show differences from the defaults, or between two of a kind",
        diff,
        ENTITY,
    ),
)
