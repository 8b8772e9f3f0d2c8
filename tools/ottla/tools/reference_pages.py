"""Generator of the pages of docs/reference/ from declarations: `make docs`.

settings.md is generated from `model/settings`, cli.md from the parsers, and client.md from
docstrings. compatibility.md is generated from `wire/apis.py` and the APIs of a broker, metrics.md
from the metrics of a broker and a controller. The table of features in README.md is generated too.
A test compares the committed pages with the generated pages.
"""

import sys
from pathlib import Path

import trio

from ottla.controller.controller_metrics import empty_controller_registry
from ottla.controller.kafka.kafka_service import SERVED
from ottla.model.ids import NodeId
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.client import ConsumerConfig, ProducerConfig
from ottla.model.settings.connections import ConnectionConfig
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.declare import Definition, definitions
from ottla.model.settings.dynamic import broker_definitions, definitions_of
from ottla.model.settings.kafka_keys import idle_definitions
from ottla.model.settings.quotas import MutationQuotaConfig
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.security.authorizer import AuthorizerConfig
from ottla.model.settings.security.sasl import SaslSettings
from ottla.model.settings.share_client import ShareConsumerConfig
from ottla.model.settings.storage.disks import DiskConfig
from ottla.model.settings.storage.topic import TOPIC_DEFINITIONS
from ottla.model.settings.telemetry.client_metrics import SubscriptionConfig
from ottla.telemetry.metrics.instruments import Registry
from ottla.testing.in_process import open_in_process_cluster
from ottla.tools.cli_page import cli_page
from ottla.tools.client_page import reference
from ottla.tools.completion_scripts import COMPLETIONS, scripts
from ottla.tools.markdown import NOTICE, code, table
from ottla.tools.permissions_page import COLUMNS, INTRODUCTION, permission_rows, rpc_rows
from ottla.wire.apis import API, BROKER_KEYS

MISSING = {
    "quotas": (48, 49),
    "share groups (KIP-932)": (*range(76, 80), *range(83, 88), 90, 91, 92),
    "streams groups (KIP-1071)": (88, 89, 93),
}
"""API keys that some features of Kafka need, by feature. The compatibility page lists a feature as
missing if brokers serve none of its keys."""

FEATURES = (
    ("produce, fetch, all five codecs, idempotent producers", "yes", "record bytes never change"),
    ("replication: acks=all, in-sync sets, ELR (KIP-966), unclean elections", "yes", ""),
    ("KRaft quorum", "yes", "voters change while it runs (KIP-853); gRPC between nodes"),
    ("consumer groups: classic and KIP-848", "yes", "groups may move from one to the other"),
    (
        "racks in the coordinator's assignors, uniform and range",
        "yes",
        "balance first; Kafka 4.4 ignores client.rack in KIP-848 groups",
    ),
    ("retention by time and size, DeleteRecords, segments as Kafka's tools read them", "yes", ""),
    ("admin requests: topics, configs, partitions, reassignment, elections, groups", "yes", ""),
    ("client metrics (KIP-714)", "yes", "OTLP, Prometheus, a topic, plug-ins"),
    ("Kafka Connect, Kafka Streams", "yes", "as they are; Streams with exactly_once_v2, too"),
    (
        "reads from the nearest replica (KIP-392)",
        "yes",
        "with replica.selector.class; a new high watermark reaches its followers at once",
    ),
    ("several log directories", "yes", "a failed one goes offline; replicas move between them"),
    ("log compaction", "yes", "in processes of its own; `ottla cleaner` shows and steers it"),
    (
        "transactions, with offsets of groups",
        "yes",
        "both protocols (KIP-98, KIP-890); a commit after the coordinator's own abort is refused "
        "with PRODUCER_FENCED as from KAFKA-20785 on, in 4.4.0 with INVALID_TXN_STATE; so is "
        "the end of a producer that an older client fenced, which 4.4.0 serves",
    ),
    (
        "quotas: bytes, request time, controller mutations, connections; replication throttles",
        "yes",
        "by user, client id, listener and address; `ottla quota`",
    ),
    (
        "SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
        "yes",
        "re-authentication too (KIP-368); delegation tokens (KIP-48)",
    ),
    ("ACLs: StandardAuthorizer, prefixes, hosts and ranges", "yes", "each API by one table"),
    (
        "TLS: SSL and SASL_SSL listeners, client certificates, mapping rules",
        "yes",
        "key stores are PEM; certificates are renewed while brokers run",
    ),
    (
        "share groups (KIP-932)",
        "yes",
        "`ottla share`; with dead letters (KIP-1191): no record is archived before its letter is "
        "acknowledged",
    ),
    (
        "tiered storage (KIP-405)",
        "yes",
        "no plug-in: S3, Google Cloud Storage, Azure or a directory; a lost cluster is restored "
        "from the bucket (docs/tiered-storage.md)",
    ),
    ("streams groups", "no", ""),
)
"""Rows of the feature table: a feature of Kafka, whether it works, and a remark."""
DEPARTURES = (
    (
        "the length of a salted password",
        "Kafka stores whatever AlterUserScramCredentials brings as a salted password. Here it has "
        "the length of the mechanism's hash, 32 or 64 bytes, or is refused with "
        "UNACCEPTABLE_CREDENTIAL: of another length it can come from no password, and no "
        "login would succeed with it.",
    ),
    (
        "levels of features",
        "metadata.version has no level below 30 (4.3-IV0), and streams.version "
        "has only 0, so that `kafka-features upgrade --release-version` is refused for features "
        "that do not exist here. A feature that a request names twice is refused; Kafka takes one "
        "of the two levels. `ottla.version` is our own.",
    ),
    (
        "log.retention.ms and others that a former release stored",
        "A stored value that Kafka 4.4's bounds refuse is passed over with a warning, and the "
        "default holds.",
    ),
    (
        "names of broker settings that are unknown",
        "Stored, described as sensitive and accepted as by Kafka, and warned about once; one of "
        "the security family is refused. `ottla config set` refuses them all.",
    ),
    (
        "byte quotas: a token bucket",
        "Kafka measures a rate over windows and forgets a burst all at once when its window "
        "goes, so that a client gets between half of its limit and a third more over a minute. "
        "Here what is overdrawn stays overdrawn until it is paid off, and a minute gives the "
        "limit. The throttle has Kafka's formula; the request quota has Kafka's rate.",
    ),
    (
        "whole batches for limited clients",
        "Kafka cuts a response wherever its bytes end, and the client pays for a part of a "
        "batch that it has to fetch again. A client with a byte quota is given whole batches; "
        "one larger than ten windows of its limit once it has saved up all it can. Clients "
        "without a quota get what Kafka gives.",
    ),
    (
        "bounded producer state",
        "Kafka remembers every producer until producer.id.expiration.ms, whatever memory that "
        "takes. Here a log remembers 10,000 at most and all logs of a broker 250,000 together; "
        "the ones that were silent for longest are forgotten first, 64 of each log never for "
        "the sake of others. A producer that was forgotten is served as a new one.",
    ),
    (
        "offsets of tiered topics",
        "ListOffsets -5 is -1 once no copied segment remains. Kafka still returns the last offset "
        "that was ever copied, and if remote.storage.enable is set to false and later to true, it "
        "does not copy these segments again. The local start (-4) is never below the log start; "
        "in Kafka it is after records were deleted and tiered storage was enabled later. The "
        "record with the largest timestamp (-3) is looked up above the log start only. All else "
        "that `tests/cluster/tier/test_tier_beside_kafka.py` compares with Kafka 4.4.0 is equal.",
    ),
    (
        "a full disk (ENOSPC, EDQUOT, EFBIG)",
        "Kafka takes the whole log directory offline, and stops with the last one. Here appends "
        "are refused with KAFKA_STORAGE_ERROR, reads go on, and appends are accepted again when "
        "there is room: space is made by deleting records, which needs the broker. Other errors "
        "take a log offline.",
    ),
    (
        "group.consumer.assignment.interval.ms is 0 by default",
        "Kafka 4.4 has 1000, which batches the work of its assignors. Here a target is computed "
        "in steps beside other requests, and a member that joins is answered with its "
        "partitions; Kafka answers at once with none, and the member gets them with a later "
        "heartbeat.",
    ),
    (
        "addresses only in connection quotas",
        "max.connections.per.ip.overrides and entities of type ip take IP addresses. Kafka also "
        "takes a name that resolves; every node resolves it once, to the first address that its "
        "resolver gives, and keeps that for as long as it runs. Here a name is refused "
        "(INVALID_REQUEST, or the start), as Kafka refuses one that does not resolve.",
    ),
    (
        "the size of a fetch under quota",
        "Kafka charges the response's body and its length, here the whole frame is charged, "
        "five bytes more.",
    ),
    (
        "a node's own metrics do not leave by OpenTelemetry's SDK",
        "Its traces do. The SDK (1.45) has no Summary, which Kafka's request times are, sums up "
        "what goes beyond 2,000 series of an instrument, and collects and encodes in one piece. "
        "Of 30,000 points it took 22 µs of CPU each and held the interpreter for 655 ms; "
        "`telemetry/metrics/own_otlp` took 7 µs and 3 ms at the longest (medians of 7 rounds on a "
        "busy machine of two cores, Python 3.11). What arrives at collectors is the same OTLP. "
        "`python -m ottla.bench.own_metrics_beside_sdk` measures it again.",
    ),
    (
        "fetches of consumers from followers",
        "Kafka's followers serve every consumer that asks (Fetch 11 and later). Here they do only "
        "with replica.selector.class set, and otherwise answer NOT_LEADER_OR_FOLLOWER: a client "
        "with old metadata then learns of the new leader instead of reading behind it.",
    ),
    (
        "leader epochs below the log start",
        "Kafka drops them as the log start is raised, here they stay until the segment with their "
        "records is removed: a kill may take the log start back, and a log with records of epochs "
        "that it does not know would report no divergence to followers.",
    ),
    (
        "dead letters of share groups",
        "Kafka archives a record whether or not its letter could be written, after five attempts "
        "at most, and writes letters without the record's headers and with the present time. Here "
        "the record is archived only once all in-sync replicas have its letter, and counts "
        "against share.partition.max.record.locks until then; a copied letter has the record's "
        "headers and timestamp. The topic of the records themselves is refused as their dead "
        "letter topic, which Kafka accepts, so that letters of letters follow without end. A "
        "record that the log no longer has gets no letter, in Kafka one without key and value.",
    ),
    (
        "a log that ends below its checkpoints, or is gone",
        "Kafka opens what is there, and may elect it; here such a replica leaves ISR and ELR, is "
        "filled again by a whole one, and leads only by an unclean election.",
    ),
    (
        "a `.txnindex` or a closed segment that changed",
        "Kafka takes any `.txnindex` with plausible entries; here digests and sizes that the last "
        "flush or clean stop wrote are compared, and what differs is built or checked again.",
    ),
)
"""Deliberate differences from Kafka, with their reasons."""

FEATURES_BEGIN, FEATURES_END = "<!-- features: begin -->\n", "<!-- features: end -->\n"


def features_table() -> str:
    """Return a Markdown table of Kafka's features and whether they work in Ottla."""
    return table(("feature of Kafka", "works", "note"), FEATURES)


def with_features(readme: str) -> str:
    """Return the README's text with a new table of features between the two marker comments."""
    before, _, rest = readme.partition(FEATURES_BEGIN)
    _, _, after = rest.partition(FEATURES_END)
    return before + FEATURES_BEGIN + features_table() + FEATURES_END + after


def settings_page() -> str:
    """Return the text of docs/reference/settings.md."""
    sections = [
        ("Brokers", {**definitions(BrokerConfig), **broker_definitions()}),
        (
            "Controllers",
            {
                **definitions(ControllerConfig),
                **definitions(MutationQuotaConfig),
                **definitions(ConnectionConfig),
                **definitions(SaslSettings),
                **definitions(AuthorizerConfig),
                **definitions(DiskConfig),
            },
        ),
        ("Topics", TOPIC_DEFINITIONS),
        ("Groups", definitions_of(ConfigKind.GROUP)),
        ("Client metrics subscriptions", definitions(SubscriptionConfig)),
        ("Producer of `ottla.client`", definitions(ProducerConfig)),
        ("Consumer of `ottla.client`", definitions(ConsumerConfig)),
        ("Share consumer of `ottla.client`", definitions(ShareConsumerConfig)),
    ]
    text = (
        f"{NOTICE}# Settings\n\nKeys, units and defaults are Kafka's; keys of our own begin with "
        "`ottla.`. A setting of the security family is served or refused, never ignored.\n"
    )
    idle = (
        (code(key), "" if one.default is None else code(one.default), one.has_no_effect_yet)
        for key, one in sorted(idle_definitions().items())
        if not one.is_internal
    )
    for title, found in sections:
        rows = (_setting_row(each) for _, each in sorted(found.items()))
        text += f"\n## {title}\n\n{table(('key', 'default', 'allowed', 'meaning'), rows)}"
    text += (
        "\n## Keys of Kafka without meaning\n\nA file may have them and a running broker accepts "
        "them where Kafka's does: they are checked, stored, described, and warned about once.\n\n"
    )
    return text + table(("key", "default", "why it has no meaning"), idle)


def _setting_row(setting: Definition) -> tuple[str, ...]:
    note = " Can be changed while the broker runs." if setting.is_dynamic else ""
    return (
        code(setting.key),
        "" if setting.default is None else code(setting.default),
        setting.allowed(),
        setting.documentation + note,
    )


DIFFERENCES_OF_TOOLS = (
    (
        "the sentences of refusals",
        "a refusal says what is allowed, where Kafka names the type of the value; codes are "
        "Kafka's",
    ),
    (
        "`kafka-configs --alter` of a controller's own settings is refused with INVALID_REQUEST",
        "Kafka stores any key, read-only ones included, and none has an effect",
    ),
    (
        "settings of a node that is not registered are refused with INVALID_REQUEST, not "
        "BROKER_ID_NOT_REGISTERED",
        "brokers of Kafka and Ottla answer INVALID_REQUEST as well",
    ),
    (
        "values of settings of all brokers are checked at controllers, too",
        "Kafka's controllers store `log.retention.ms=many`, which no broker can use",
    ),
    (
        "`kafka-configs --describe` lists the settings and loggers of Ottla, and of groups only "
        "those of consumers and share groups",
        "Kafka's are those of the JVM, streams groups and tiers",
    ),
    (
        "`kafka-metadata-quorum describe --status` shows directory ids also of static voters",
        "each voter has one here",
    ),
    (
        "`kafka-cluster api-versions` and `kafka-broker-api-versions` list no APIs of "
        "streams groups, and at a controller fewer APIs",
        "they are not served; a controller serves what administrators ask, and nodes use gRPC",
    ),
    (
        "`kafka-share-groups` with share.version 0, and `kafka-streams-groups`, say that the node "
        "does not support the API",
        "Kafka says that the version of the API is not supported",
    ),
    (
        "`kafka-features describe` lists ottla.version, no streams.version, and "
        "metadata.version from 4.3-IV0 on",
        "features of this release",
    ),
    (
        "`kafka-share-groups --describe` shows start offsets behind accepted records, and "
        "`__share_group_state` has them in the record of the acknowledgement",
        "Kafka stores a new start offset of a share partition with its next write only; lags are "
        "equal",
    ),
    (
        "`kafka-consumer-groups` and `kafka-share-groups --describe --verbose` show epochs that "
        "are lower by one, and `__consumer_offsets` has no record of an empty classic group before "
        "its first generation",
        "a group starts at epoch 1 here, in Kafka 4.4 at epoch 2, and a share group without "
        "members gets no new assignment; members compare epochs only",
    ),
    (
        "`kafka-dump-log` ends with 1 for an index without entries",
        "the file of such an index is empty here, in Kafka only once its segment is closed",
    ),
    (
        "the order of partitions in records of `__transaction_state`",
        "a set; Kafka writes it in the order of its hashes",
    ),
)


METRICS_LEFT_OUT = (
    (
        "most rates (`OneMinuteRate`, `…-rate`), and percentiles of meters",
        "Prometheus computes rates from the counters; times are summaries",
    ),
    (
        "`…-channel-metrics`, `heartbeat-metrics`, `registration-metrics`, `forwarding-metrics`, "
        "`alter-partition-metrics`, `directory-assignments-metrics`, `ForwardingManager`",
        "connections of Kafka's nodes among each other; here they are a few gRPC calls",
    ),
    (
        "`RequestChannel` and `Processor`, `KafkaRequestHandlerPool` by role, `Acceptor`, "
        "`io-time`, `select` and `queue-size` of `socket-server-metrics` and of quotas",
        "there are no threads for the network and for requests, and no queue between them: "
        "`RequestHandlerAvgIdlePercent` is the idle time of the event loop",
    ),
    (
        "queue, batch and purgatory times and idle threads of `group-coordinator-metrics` and "
        "`share-coordinator-metrics`; `MetadataLoader` and `ControllerEventManager` "
        "`AvgIdleRatio`; `BrokerMetadataListener`",
        "coordinators and metadata have no thread of their own",
    ),
    (
        "counts of commits, deletions and expiries in `group-coordinator-metrics`",
        "not counted; `RequestMetrics` has the requests",
    ),
    (
        "message conversions, `TemporaryMemoryBytes`, `InvalidMagicNumberRecordsPerSec`",
        "no record is converted, and only magic 2 is accepted",
    ),
    (
        "`ReplicaFetcherManager` and `ReplicaAlterLogDirsManager` beside `MaxLag` and "
        "`FailedPartitionsCount`",
        "there are no fetcher threads that could die",
    ),
    (
        "`MetadataErrorCount`, `metadata-load-error-count`, `metadata-apply-error-count`",
        "a node that cannot apply a record ends",
    ),
    (
        "metrics of streams groups, of tiers, and of ZooKeeper's successors such as "
        "`ignored-static-voters`",
        "not served",
    ),
    ("`app-info`, `yammer-metrics-count`, `kafka-metrics-count`, `Log4jController`", "of the JVM"),
)
"""Metrics in Kafka 4.4.0's MBeans that a node does not export, each with the reason."""


def compatibility_page() -> str:
    """Return the text of docs/reference/compatibility.md."""
    rows = [
        (str(api.key), api.name, f"{api.lowest}–{api.latest_stable}")
        for api in API.values()
        if api.key in BROKER_KEYS
    ]
    own = [(str(api.key), api.name) for api in API.values() if api.is_own]
    on_controllers = [API[key].name for key in sorted(SERVED)]
    missing = [
        (capability, ", ".join(API[key].name for key in keys))
        for capability, keys in MISSING.items()
        if not BROKER_KEYS.intersection(keys)
    ]
    named = {key for keys in MISSING.values() for key in keys}
    others = [
        API[key].name
        for key in API
        if key not in BROKER_KEYS | named and API[key].on_broker and not API[key].is_own
    ]
    also = f"Also not served on a broker's listener: {', '.join(others)}.\n\n" if others else ""
    return (
        f"{NOTICE}# Compatibility\n\n{features_table()}\n## By decision\n\n"
        f"{table(('what differs', 'why'), DEPARTURES)}\n## The protocol\n\n"
        "The protocol is that of Apache Kafka 4.4. "
        "A broker lists the APIs below in ApiVersions, and refuses others with UNSUPPORTED_VERSION."
        "\n\n### Served\n\n"
        f"{table(('key', 'API', 'versions'), rows)}\n### Not served\n\n"
        f"{table(('capability', 'APIs'), missing)}\n"
        f"{also}### Our own\n\nNo client lists these; `ottla` uses them.\n\n"
        f"{table(('key', 'API'), own)}\n### On controllers\n\nA controller serves the following, "
        f"for tools with `--bootstrap-controller`: {', '.join(on_controllers)}. Nodes use gRPC.\n\n"
        "## Kafka's tools\n\nKafka 4.4's own tools have the exit codes and outputs that they have "
        "with Kafka, at brokers and at controllers, with one node of each role and with three "
        "(`tests/cluster/kafka_tools`, 419 runs of tools each), except for:\n\n"
        f"{table(('what differs', 'why'), DIFFERENCES_OF_TOOLS)}\n## Kafka's metrics\n\n"
        "`/metrics` has the numbers of Kafka 4.4.0's MBeans ([list](metrics.md)), except for:\n\n"
        f"{table(('what is missing', 'why'), METRICS_LEFT_OUT)}"
    )


def metrics_page(of_brokers: Registry) -> str:
    """Return the text of docs/reference/metrics.md. `of_brokers` is the metrics registry of a
    running broker."""
    text = (
        f"{NOTICE}# Metrics\n\n`/metrics` of a node (`metrics.prometheus.port`). Names are Kafka's "
        "MBeans by the usual rules of the JMX exporter; names of our own begin with `ottla_`. "
        "What clients report is on [its page](../telemetry.md).\n"
    )
    registries = {"Brokers": of_brokers, "Controllers": empty_controller_registry()}
    for title, registry in registries.items():
        found = {each.name: each for each in registry.collect() if each is not None}
        rows = [
            (code(name), each.kind.value, ", ".join(each.label_names), each.help)
            for name, each in sorted(found.items())
        ]
        text += f"\n## {title}\n\n{table(('name', 'kind', 'labels', 'meaning'), rows)}"
    return text


def permissions_page() -> str:
    """Return the text of docs/reference/permissions.md."""
    return (
        f"{NOTICE}{INTRODUCTION}{table(COLUMNS, permission_rows(is_own=False))}\n## Our own\n\n"
        f"{table(COLUMNS, permission_rows(is_own=True))}\n## Between nodes\n\n"
        "Where nodes show each other certificates, a caller without one is refused before this.\n\n"
        f"{table(('gRPC method', 'operations'), rpc_rows())}"
    )


async def pages() -> dict[str, str]:
    """Return the text of every generated page, by its file name."""
    async with open_in_process_cluster() as cluster:
        metrics = metrics_page(cluster.brokers[NodeId(1)].registry)
    return {
        "cli.md": cli_page(),
        "client.md": reference(),
        "compatibility.md": compatibility_page(),
        "metrics.md": metrics,
        "permissions.md": permissions_page(),
        "settings.md": settings_page(),
    }


def main() -> None:
    """Write the reference pages into the folder that the command line names. Also write the
    completion scripts and the README's table of features."""
    folder = Path(sys.argv[1])
    for name, text in trio.run(pages).items():
        (folder / "reference" / name).write_text(text)
    for name, text in scripts().items():
        (COMPLETIONS / name).write_text(text)
    readme = folder.parent / "README.md"
    readme.write_text(with_features(readme.read_text()))


if __name__ == "__main__":
    main()
