"""Keys of a Kafka broker that have no effect in Ottla, and keys that Ottla refuses. A key is
refused if operators would rely on an effect that Ottla does not provide.

Pure. The keys without effect are all keys of Kafka 4.4 that no config class of Ottla declares, for
example for thread pools and purgatories. A file may contain them, and a running broker accepts
changes of those that a Kafka broker accepts. Their values are checked against Kafka's bounds,
stored, and described. One warning names the keys that are set.
"""

from collections.abc import Iterable, Mapping
from functools import cache

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import Definition, SettingKind

_IDLE_KEYS = """
background.threads INT 10 1.. dynamic
broker.id INT -1
controlled.shutdown.enable BOOLEAN true
controller.performance.always.log.threshold.ms LONG 2000 0.. internal
controller.performance.sample.period.ms LONG 60000 100.. internal
controller.quorum.auto.join.enable BOOLEAN false
controller.socket.timeout.ms INT 30000
delete.records.purgatory.purge.interval.requests INT 1
early.start.listeners LIST null
fetch.purgatory.purge.interval.requests INT 1000
group.consumer.assignor.offload.enable BOOLEAN true dynamic internal
group.coordinator.append.linger.ms INT -1 -1..
group.coordinator.background.threads INT 2 1..
group.coordinator.cached.buffer.max.bytes INT 1048588 524288.. dynamic
group.coordinator.threads INT 4 1..
group.share.assignor.offload.enable BOOLEAN true dynamic internal
group.share.dlq.manager.class.name STRING \
org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager internal
group.share.persister.class.name STRING \
org.apache.kafka.server.share.persister.DefaultStatePersister internal
group.streams.acceptable.recovery.lag LONG 10000 0.. internal
group.streams.assignment.interval.ms INT 1000 0.. dynamic
group.streams.assignor.offload.enable BOOLEAN true dynamic internal
group.streams.assignors LIST sticky
group.streams.heartbeat.interval.ms INT 5000 1..
group.streams.initial.rebalance.delay.ms INT 3000 0..
group.streams.max.assignment.interval.ms INT 15000 0..
group.streams.max.heartbeat.interval.ms INT 15000 1..
group.streams.max.session.timeout.ms INT 60000 1..
group.streams.max.size INT 2147483647 1..
group.streams.max.standby.replicas INT 2 0..
group.streams.max.warmup.replicas INT 20 0.. internal
group.streams.min.assignment.interval.ms INT 0 0..
group.streams.min.heartbeat.interval.ms INT 5000 1..
group.streams.min.session.timeout.ms INT 45000 1..
group.streams.min.task.offset.interval.ms INT 15000 1.. internal
group.streams.num.standby.replicas INT 0 0..
group.streams.num.warmup.replicas INT 2 0.. internal
group.streams.rack.aware.assignment.tags LIST ""
group.streams.session.timeout.ms INT 45000 1..
group.streams.task.offset.interval.ms INT 60000 1.. internal
group.streams.topology.description.plugin.class CLASS null
internal.metadata.delete.delay.millis LONG 60000 internal
internal.metadata.log.segment.bytes INT null internal
internal.metadata.max.batch.size.in.bytes INT 8388608 internal
kafka.metrics.polling.interval.secs INT 10 1..
kafka.metrics.reporters LIST ""
log.dir.failure.timeout.ms LONG 30000 1..
max.request.partition.size.limit INT 2000 1..
metric.reporters LIST org.apache.kafka.common.metrics.JmxReporter dynamic
metrics.num.samples INT 2 1..
metrics.recording.level STRING INFO
metrics.sample.window.ms LONG 30000 1..
num.io.threads INT 8 1.. dynamic
num.network.threads INT 3 1.. dynamic
num.replica.fetchers INT 1 1.. dynamic
offsets.load.buffer.size INT 5242880 1..
offsets.topic.compression.codec INT 0
producer.purgatory.purge.interval.requests INT 1000
queued.max.requests INT 500 1..
remote.log.index.file.cache.ttl.ms LONG 900000 -1.. internal
remote.log.manager.expiration.thread.pool.size INT 10 1.. dynamic
remote.log.manager.follower.thread.pool.size INT 2 1.. dynamic
remote.log.manager.task.retry.backoff.ms LONG 500 1.. internal
remote.log.manager.task.retry.jitter DOUBLE 0.2 0..0.5 internal
remote.log.manager.thread.pool.size INT 2 1..
remote.log.metadata.custom.metadata.max.bytes INT 128 0..
remote.log.metadata.manager.class.name STRING \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path STRING null
remote.log.metadata.manager.impl.prefix STRING rlmm.config.
remote.log.metadata.manager.listener.name STRING null
remote.log.reader.max.pending.tasks INT 100 1..
remote.log.storage.manager.class.name STRING null
remote.log.storage.manager.class.path STRING null
remote.log.storage.manager.impl.prefix STRING rsm.config.
replica.socket.receive.buffer.bytes INT 65536
sasl.kerberos.kinit.cmd STRING /usr/bin/kinit dynamic
sasl.kerberos.min.time.before.relogin LONG 60000 dynamic
sasl.kerberos.principal.to.local.rules LIST DEFAULT dynamic
sasl.kerberos.service.name STRING null dynamic
sasl.kerberos.ticket.renew.jitter DOUBLE 0.05 dynamic
sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8 dynamic
server.max.startup.time.ms LONG 9223372036854775807 0.. internal
share.coordinator.append.linger.ms INT -1 -1..
share.coordinator.cached.buffer.max.bytes INT 1048588 524288.. dynamic
share.coordinator.load.buffer.size INT 5242880 1..
share.coordinator.state.topic.compression.codec INT 0
share.coordinator.threads INT 1 1..
share.fetch.purgatory.purge.interval.requests INT 1000
socket.connection.setup.timeout.max.ms LONG 30000
socket.connection.setup.timeout.ms LONG 10000
unstable.api.versions.enable BOOLEAN false internal
unstable.feature.versions.enable BOOLEAN false internal
"""
"""One row per key: name, type and default, then the bounds, if any, `dynamic` if Kafka can change
the key at run time, and `internal` if Kafka does not describe it."""

_REASONS: tuple[tuple[str, str], ...] = (
    ("group.share.assignor.", "targets are computed in steps of the event loop"),
    ("group.share.", "code of the JVM is not run here"),
    ("share.fetch.purgatory.", "a completed request leaves the purgatory at once"),
    ("share.coordinator.threads", "one event loop serves all connections"),
    ("share.coordinator.load.", "the state is read in parts of 64 KiB"),
    (
        "share.coordinator.state.topic.compression.",
        "records are appended uncompressed at the end of each event-loop iteration",
    ),
    ("share.coordinator.", "records are appended at the end of each event-loop iteration"),
    ("group.streams.", "groups of Kafka Streams are not served"),
    ("remote.log.storage.manager.", "remote.log.storage.uri names the object store"),
    ("remote.log.metadata.", "the metadata topic is built in"),
    ("remote.", "tasks of tiered storage run on the event loop"),
    ("sasl.kerberos.", "GSSAPI is not offered"),
    ("metric.reporters", "code of the JVM is not run here"),
    ("kafka.metrics.", "code of the JVM is not run here"),
    ("num.", "one event loop serves all connections"),
    ("background.threads", "one event loop serves all connections"),
)
"""Reasons why a key has no effect, by prefix. The first matching prefix applies."""
_OTHER_REASON = "it belongs to a part of Kafka's broker that Ottla does not have"

THREAD_POOLS = frozenset(
    {
        "background.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
    }
)
"""Keys of thread pool sizes. As in Kafka, a running broker changes such a size at most to half or
to double."""


@cache
def idle_definitions() -> Mapping[str, Definition]:
    """Return the declarations of the keys of Kafka 4.4 that have no effect in Ottla, by key."""
    rows = (row.split() for row in _IDLE_KEYS.strip().splitlines())
    return {row[0]: _idle_definition(*row) for row in rows}


def _idle_definition(key: str, kind: str, default: str, *rest: str) -> Definition:
    lowest, highest = "", ""
    if rest and ".." in rest[0]:
        lowest, _, highest = rest[0].partition("..")
    reason = next((why for start, why in _REASONS if key.startswith(start)), _OTHER_REASON)
    return Definition(
        key=key,
        field_name="",
        kind=SettingKind[kind],
        default={"null": None, '""': ""}.get(default, default),
        doc="A setting of Kafka's broker.",
        at_least=float(lowest) if lowest else None,
        at_most=float(highest) if highest else None,
        is_dynamic="dynamic" in rest,
        is_internal="internal" in rest,
        has_no_effect_yet=reason,
    )


def check_idle(texts: Mapping[str, str]) -> None:
    """Check the keys that have no effect in Ottla. Raises ConfigError if Kafka would refuse a
    value."""
    for key, definition in idle_definitions().items():
        if key in texts:
            definition.value_of(texts[key])
    node_id = texts.get("node.id", "").strip()
    broker_id = texts.get("broker.id", node_id).strip()
    if broker_id != node_id:
        raise ConfigError("broker.id", f"is {broker_id!r}, and node.id is {node_id!r}; remove it")


_FORMER_KEYS = """
broker.id.generation.enable control.plane.listener.name controller.quorum.voter.ids
log.message.timestamp.difference.max.ms port host.name advertised.host.name advertised.port
quota.producer.default quota.consumer.default reserved.broker.max.id
transaction.remove.expired.transaction.cleanup.interval.ms zookeeper.clientCnxnSocket
zookeeper.connect zookeeper.connection.timeout.ms zookeeper.max.in.flight.requests
zookeeper.metadata.migration.enable zookeeper.session.timeout.ms zookeeper.sync.time.ms
"""
FORMER_KEYS = frozenset(_FORMER_KEYS.split())
"""Keys of older Kafka versions that no longer exist in Kafka 4.4."""

_NO_CODE = "code of the JVM is not run here"

UNKEPT_PROMISES: Mapping[str, str] = {
    "alter.config.policy.class.name": f"{_NO_CODE}, so any configuration would be accepted",
    "create.topic.policy.class.name": f"{_NO_CODE}, so any topic would be accepted",
    "config.providers": f"{_NO_CODE}, so ${{...}} in values would stay as it is",
}
"""Keys of settings whose effect Ottla cannot provide although operators would rely on it, each with
the reason."""


def check_promises(texts: Mapping[str, str]) -> None:
    """Raise ConfigError for the first setting whose effect Ottla cannot provide although an
    operator would rely on it."""
    for key, reason in UNKEPT_PROMISES.items():
        if texts.get(key, "").strip().lower() not in ("", "false"):
            raise ConfigError(key, f"is set, but {reason}; remove it")


def keys_of_kafka(keys: Iterable[str]) -> list[str]:
    """Return the subset of the given keys that exist in Kafka but have no effect in Ottla,
    sorted."""
    return sorted(key for key in keys if key in idle_definitions() or key in FORMER_KEYS)
