"""`ottla config get|set|diff`: settings of topics, brokers, groups, loggers, client metrics."""

import argparse
from collections.abc import Iterable

from ottla.cli.common import (
    add_cluster_arguments,
    add_format_argument,
    bootstrap_of,
    print_json,
    print_table,
    run_async,
)
from ottla.cli.outcomes import show
from ottla.cli.terminal import note
from ottla.cli.topics.change_arguments import add_change_arguments
from ottla.cli.topics.config_changes import (
    OPTIONS,
    SOURCES,
    Entity,
    alter,
    as_json,
    default_of,
    own_source,
    parse_changes,
    settings_of,
)
from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_configs import ConfigEntry
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.resources import ConfigKind, ConfigSource

CLUSTER = Entity(ConfigKind.BROKER, "")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla config'."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    get = verbs.add_parser("get", help="show settings and their sources")
    get.add_argument(
        "keys", nargs="*", metavar="KEY", help="keys of settings (default: those that are set)"
    )
    get.add_argument("--all", action="store_true", help="show defaults too")
    set_ = verbs.add_parser("set", help="change settings; running brokers apply them at once")
    set_.add_argument(
        "changes",
        nargs="*",
        metavar="KEY=VALUE",
        help="setting; KEY+=VALUE and KEY-=VALUE change a list",
    )
    add_change_arguments(set_)
    diff = verbs.add_parser(
        "diff", help="show differences from the defaults, or between two of a kind"
    )
    for verb in (get, set_, diff):
        whose = verb.add_mutually_exclusive_group(required=True)
        whose.add_argument(
            "--topic", action="append", default=[], metavar="NAME", help="topic; may be repeated"
        )
        whose.add_argument(
            "--broker",
            action="append",
            default=[],
            type=int,
            metavar="ID",
            help="node.id of a broker; may be repeated",
        )
        whose.add_argument("--cluster", action="store_true", help="settings of all brokers")
        whose.add_argument(
            "--group",
            action="append",
            default=[],
            metavar="NAME",
            help="group of consumers; may be repeated",
        )
        whose.add_argument(
            "--client-metrics",
            action="append",
            default=[],
            metavar="NAME",
            help="subscription to metrics of clients; may be repeated",
        )
        whose.add_argument(
            "--loggers",
            action="append",
            default=[],
            type=int,
            metavar="ID",
            help="node.id of a broker, for its log levels; may be repeated",
        )
        add_cluster_arguments(verb)
        add_format_argument(verb)


def run(arguments: argparse.Namespace) -> int:
    """Run one verb against the cluster."""
    entities = _entities(arguments)
    if len(entities) > (2 if arguments.verb == "diff" else 1):
        raise ConfigError(
            f"--{OPTIONS[entities[0].kind]}",
            "names too many; 'diff' compares two, 'get' and 'set' take one",
        )

    async def body() -> int:
        async with open_admin(bootstrap_of(arguments)) as admin:
            return await VERBS[arguments.verb](admin, arguments, entities)

    return run_async(body)


async def get(admin: Admin, arguments: argparse.Namespace, entities: list[Entity]) -> int:
    """Show the settings of one entity."""
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
    """Change settings of one entity, or check the changes."""
    (entity,) = entities
    changes = parse_changes("KEY=VALUE", arguments.changes, arguments.unset)
    if entity.kind is ConfigKind.BROKER:
        _check_broker_keys(one.key for one in changes if one.change is not None)
    before = await settings_of(admin, entity, [change.key for change in changes])
    refusals = await alter(admin, entities, changes, is_dry=arguments.dry_run)
    rows = []
    if not refusals:
        for change in changes:
            now = before.get(change.key)
            after = change.after(now, own_source(entity))
            if after is None and change.change is None:
                after = default_of(entity, change.key)
            rows.append((change.key, None if now is None else _value(now), after))
    show(arguments, ("KEY", "WAS", "NOW"), rows, list(refusals.values()), command="config")
    if arguments.dry_run:
        note("nothing was changed (--dry-run)")
    return 0


def _check_broker_keys(keys: Iterable[str]) -> None:
    """Refuse names that brokers store without knowing them, as Kafka's do."""
    # Imported late: of all commands this one alone needs the declarations.
    from ottla.model.settings.dynamic import described_definitions, of_one_listener
    from ottla.model.settings.topic import TOPIC_DEFINITIONS

    for key in keys:
        if key in described_definitions() or of_one_listener(key) is not None:
            continue
        cure = "see 'ottla config get --broker ID --all'"
        brokers = TOPIC_DEFINITIONS[key].broker_keys if key in TOPIC_DEFINITIONS else ()
        if brokers:
            cure = f"for all topics it is {brokers[0]}"
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {key}; {cure}")


async def diff(admin: Admin, arguments: argparse.Namespace, entities: list[Entity]) -> int:
    """Show what an entity sets apart from the defaults, or how two differ."""
    found = [await settings_of(admin, entity) for entity in entities]
    if len(entities) == 2:
        _show_differences(arguments, entities, found)
        return 0
    (settings,) = found
    defaults = settings
    if entities == [CLUSTER] and settings:
        # What holds for all has no default of its own; any broker knows Kafka's.
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
        print_table(("KEY", *names), rows)


VERBS = {"get": get, "set": set_, "diff": diff}


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
