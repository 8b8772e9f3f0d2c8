"""The invocations of Kafka's tools that are compared, in the order in which they are run.

Words are those of a shell. `{b}` is `--bootstrap-server` with the brokers' addresses, `{c}`
`--bootstrap-controller` with the controllers', and `{dir}` a directory with `FILES`,
in which `BROKERS` is replaced by the brokers' addresses.
"""

from typing import NamedTuple


class Invocation(NamedTuple):
    """One invocation of a tool."""

    tool: str
    words: str
    differs: str = ""
    """The reason why the output differs; empty if it is the same."""
    codes_differ: bool = False
    given: str = ""
    """Standard input."""
    seconds: int = 60
    """Time after which the tool is ended as by SIGTERM."""
    is_alone: bool = False
    """True if the tool ends its process without Kafka's Exit."""
    any_order: bool = False
    """True if the order of the lines, and their repetition, are left to chance."""
    any_numbers: bool = False
    """True if numbers are measurements."""


OTHER_ORDER = "the order in a set"
OTHER_START_OFFSETS = "Kafka stores a new start offset of a share partition with its next write"
OTHER_EPOCHS = "a group starts at epoch 1, in Kafka at 2, and has no record while it is empty"
EMPTY_INDEX = "an index without entries is an empty file, also while it is written"
OTHER_TEXT = "the sentence is Ottla's own"
OTHER_SETTINGS = "the settings and loggers are Ottla's own"
OTHER_FEATURES = "the features of this release"
NO_STREAMS_GROUPS = "APIs and settings of streams groups do not exist"
CHECKED_VALUES = "Kafka stores values that no broker can use"
NO_SETTINGS_OF_CONTROLLERS = "Kafka stores them, and none has an effect"
NODES_USE_GRPC = "nodes use gRPC"

TOPICS = "TopicCommand"
CONFIGS = "ConfigCommand"
ACLS = "AclCommand"
GROUPS = "GroupsCommand"
CONSUMER_GROUPS = "consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = "consumer.group.ShareGroupCommand"
STREAMS_GROUPS = "streams.StreamsGroupCommand"
FEATURES = "FeatureCommand"
QUORUM = "MetadataQuorumCommand"
CLUSTER = "ClusterTool"
ELECTION = "LeaderElectionCommand"
REASSIGN = "reassign.ReassignPartitionsCommand"
DELETE_RECORDS = "DeleteRecordsCommand"
LOG_DIRS = "LogDirsCommand"
OFFSETS = "GetOffsetShell"
TRANSACTIONS = "TransactionsCommand"
CLIENT_METRICS = "ClientMetricsCommand"
TOKENS = "DelegationTokenCommand"
PRODUCER = "ConsoleProducer"
CONSUMER = "consumer.ConsoleConsumer"
SHARE_CONSUMER = "consumer.ConsoleShareConsumer"
DUMP = "DumpLogSegments"
STORAGE = "kafka.tools.StorageTool"
FORMATTERS = "org.apache.kafka.tools.consumer"

FILES = {
    "elect.json": '{"partitions": [{"topic": "orders", "partition": 0}]}',
    "elect-unknown.json": '{"partitions": [{"topic": "unknown", "partition": 0}]}',
    "delete.json": '{"partitions": [{"topic": "orders", "partition": 0, "offset": 2}],'
    ' "version": 1}',
    "delete-far.json": '{"partitions": [{"topic": "orders", "partition": 0, "offset": 999}],'
    ' "version": 1}',
    "delete-twice.json": '{"partitions": [{"topic": "orders", "partition": 0, "offset": 1},'
    ' {"topic": "orders", "partition": 0, "offset": 2}], "version": 1}',
    "move.json": '{"version": 1, "partitions": [{"topic": "orders", "partition": 1,'
    ' "replicas": [1], "log_dirs": ["any"]}]}',
    "move-unknown.json": '{"version": 1, "partitions": [{"topic": "unknown", "partition": 0,'
    ' "replicas": [1], "log_dirs": ["any"]}]}',
    "move-away.json": '{"version": 1, "partitions": [{"topic": "orders", "partition": 0,'
    ' "replicas": [55], "log_dirs": ["any"]}]}',
    "topics.json": '{"topics": [{"topic": "events"}], "version": 1}',
    "topics-unknown.json": '{"topics": [{"topic": "unknown"}], "version": 1}',
    "offsets.csv": "orders,0,3\norders,1,1\n",
    "config.properties": "retention.ms=7200000\nmax.message.bytes=500000\n",
    "worker.properties": "bootstrap.servers=BROKERS\ngroup.id=connect\n"
    "config.storage.topic=connect-configs\nconfig.storage.replication.factor=1\n"
    "offset.storage.topic=connect-offsets\noffset.storage.replication.factor=1\n"
    "offset.storage.partitions=2\nstatus.storage.topic=connect-status\n"
    "status.storage.replication.factor=1\nstatus.storage.partitions=1\n"
    "key.converter=org.apache.kafka.connect.json.JsonConverter\n"
    "value.converter=org.apache.kafka.connect.json.JsonConverter\n",
    "slow.properties": "default.api.timeout.ms=5000\nrequest.timeout.ms=3000\n",
}

TOPIC_ROWS = (
    Invocation(TOPICS, "{b} --create --topic orders --replica-assignment {two}"
               " --config retention.ms=86400000"),
    Invocation(TOPICS, "{b} --create --topic events --replica-assignment {one}"),
    Invocation(TOPICS, "{b} --create --topic copies --replica-assignment {one}"),
    Invocation(TOPICS, "{b} --create --topic compacted --replica-assignment {one}"
               " --config cleanup.policy=compact --config segment.bytes=1048576"),
    Invocation(TOPICS, "{b} --create --topic dotted.and_under --replica-assignment {one}"),
    Invocation(TOPICS, "{b} --create --topic dotted_and.under --replica-assignment {one}"),
    Invocation(TOPICS, "{b} --create --topic numbers --replica-assignment {one}"),
    Invocation(TOPICS, "{b} --create --topic fresh --replica-assignment {one}"),
    Invocation(TOPICS, "{b} --create --topic orders --partitions 1"),
    Invocation(TOPICS, "{b} --create --if-not-exists --topic orders"),
    Invocation(TOPICS, "{b} --create --topic no/slash"),
    Invocation(TOPICS, "{b} --create --topic wide --replication-factor 9", OTHER_TEXT),
    Invocation(TOPICS, "{b} --create --topic wide --replication-factor 0"),
    Invocation(TOPICS, "{b} --create --topic wide --partitions 0"),
    Invocation(TOPICS, "{b} --create --topic wide --config no.such.config=1"),
    Invocation(TOPICS, "{b} --create --topic wide --config retention.ms=many"),
    Invocation(TOPICS, "{b} --create --topic wide --config cleanup.policy=shred"),
    Invocation(TOPICS, "{b} --create --topic wide --config remote.storage.enable=true",
               OTHER_TEXT),
    Invocation(TOPICS, "{b} --create --topic wide --config min.insync.replicas=0"),
    Invocation(TOPICS, "{b} --create --topic doubled --replica-assignment 1:1"),
    Invocation(TOPICS, "{b} --create --topic away --replica-assignment 55"),
    Invocation(TOPICS, "{b} --create --topic uneven --replica-assignment 1,1:2"),
    Invocation(TOPICS, "{b} --create --topic __consumer_offsets"),
    Invocation(TOPICS, "{b} --list"),
    Invocation(TOPICS, "{b} --list --exclude-internal"),
    Invocation(TOPICS, "{b} --list --topic 'ord.*'"),
    Invocation(TOPICS, "{b} --describe --topic orders"),
    Invocation(TOPICS, "{b} --describe --topic 'events|compacted'"),
    Invocation(TOPICS, "{b} --describe --topic unknown"),
    Invocation(TOPICS, "{b} --describe --topic unknown --if-exists"),
    Invocation(TOPICS, "{b} --describe --topic-id AAAAAAAAAAAAAAAAAAAAAg"),
    Invocation(TOPICS, "{b} --describe --topics-with-overrides --exclude-internal"),
    Invocation(TOPICS, "{b} --describe --under-replicated-partitions"),
    Invocation(TOPICS, "{b} --describe --unavailable-partitions"),
    Invocation(TOPICS, "{b} --describe --under-min-isr-partitions"),
    Invocation(TOPICS, "{b} --describe --at-min-isr-partitions --exclude-internal"),
    Invocation(TOPICS, "{b} --describe --exclude-internal --partition-size-limit-per-response 1"),
    Invocation(TOPICS, "{b} --alter --topic copies --partitions 2 --replica-assignment {two}"),
    Invocation(TOPICS, "{b} --alter --topic copies --partitions 1"),
    Invocation(TOPICS, "{b} --alter --topic copies --partitions 2"),
    Invocation(TOPICS, "{b} --alter --topic unknown --partitions 3"),
    Invocation(TOPICS, "{b} --alter --topic unknown --partitions 3 --if-exists"),
    Invocation(TOPICS, "{b} --describe --topic copies"),
    Invocation(TOPICS, "{b} --delete --topic unknown"),
    Invocation(TOPICS, "{b} --delete --topic unknown --if-exists"),
    Invocation(TOPICS, "{b} --delete --topic dotted.and_under"),
    Invocation(TOPICS, "{b}"),
)  # fmt: skip

CONFIG_ROWS = (
    Invocation(CONFIGS, "{b} --describe --entity-type topics --entity-name orders"),
    Invocation(CONFIGS, "{b} --describe --all --entity-type topics --entity-name orders",
               OTHER_SETTINGS),
    Invocation(CONFIGS, "{b} --describe --entity-type topics --entity-name unknown"),
    Invocation(CONFIGS, "{b} --describe --entity-type topics", any_order=True),
    Invocation(CONFIGS, "{b} --alter --entity-type topics --entity-name orders --add-config"
               " max.message.bytes=2000000,retention.ms=3600000"),
    Invocation(CONFIGS, "{b} --alter --entity-type topics --entity-name orders"
               " --add-config-file {dir}/config.properties"),
    Invocation(CONFIGS, "{b} --alter --entity-type topics --entity-name orders --add-config"
               " no.such.config=1"),
    Invocation(CONFIGS, "{b} --alter --entity-type topics --entity-name orders --add-config"
               " retention.ms=many", OTHER_TEXT),
    Invocation(CONFIGS, "{b} --alter --entity-type topics --entity-name orders --add-config"
               " leader.replication.throttled.replicas=[0:1,1:1]"),
    Invocation(CONFIGS, "{b} --alter --entity-type topics --entity-name orders --delete-config"
               " leader.replication.throttled.replicas"),
    Invocation(CONFIGS, "{b} --alter --entity-type topics --entity-name orders --delete-config"
               " segment.ms"),
    Invocation(CONFIGS, "{b} --alter --entity-type topics --entity-name unknown --add-config"
               " retention.ms=1"),
    Invocation(CONFIGS, "{b} --describe --topic orders"),
    Invocation(CONFIGS, "{b} --alter --entity-type brokers --entity-name 1 --add-config"
               " log.cleaner.threads=2"),
    Invocation(CONFIGS, "{b} --describe --entity-type brokers --entity-name 1"),
    Invocation(CONFIGS, "{b} --describe --broker-defaults"),
    Invocation(CONFIGS, "{b} --describe --all --entity-type brokers --entity-name 1",
               OTHER_SETTINGS),
    Invocation(CONFIGS, "{b} --alter --entity-type brokers --entity-name 1 --delete-config"
               " log.cleaner.threads"),
    Invocation(CONFIGS, "{b} --alter --entity-type brokers --entity-default --add-config"
               " log.retention.ms=100000000"),
    Invocation(CONFIGS, "{b} --describe --entity-type brokers --entity-default"),
    Invocation(CONFIGS, "{b} --alter --entity-type brokers --entity-default --delete-config"
               " log.retention.ms"),
    Invocation(CONFIGS, "{b} --alter --entity-type brokers --entity-default --add-config"
               " log.retention.ms=many", OTHER_TEXT),
    Invocation(CONFIGS, "{b} --alter --entity-type brokers --entity-name 1 --add-config"
               " node.id=7", OTHER_TEXT),
    Invocation(CONFIGS, "{b} --alter --entity-type users --entity-name alice --add-config"
               " producer_byte_rate=1024,consumer_byte_rate=2048"),
    Invocation(CONFIGS, "{b} --alter --entity-type users --entity-name alice --add-config"
               " SCRAM-SHA-256=[iterations=4096,password=secret]"),
    Invocation(CONFIGS, "{b} --alter --entity-type users --entity-name alice --add-config"
               " SCRAM-SHA-256=[iterations=1,password=secret]"),
    Invocation(CONFIGS, "{b} --alter --entity-type users --entity-name alice --add-config"
               " no_such_rate=1"),
    Invocation(CONFIGS, "{b} --describe --entity-type users --entity-name alice"),
    Invocation(CONFIGS, "{b} --describe --entity-type users"),
    Invocation(CONFIGS, "{b} --alter --entity-type clients --entity-default --add-config"
               " request_percentage=200"),
    Invocation(CONFIGS, "{b} --alter --entity-type users --entity-name alice --entity-type clients"
               " --entity-name app --add-config producer_byte_rate=99"),
    Invocation(CONFIGS, "{b} --describe --entity-type clients --entity-default"),
    Invocation(CONFIGS, "{b} --describe --entity-type users --entity-type clients"),
    Invocation(CONFIGS, "{b} --alter --entity-type ips --entity-name 10.0.0.1 --add-config"
               " connection_creation_rate=7"),
    Invocation(CONFIGS, "{b} --describe --entity-type ips"),
    Invocation(CONFIGS, "{b} --alter --ip 10.0.0.1 --delete-config connection_creation_rate"),
    Invocation(CONFIGS, "{b} --alter --entity-type users --entity-name alice --delete-config"
               " SCRAM-SHA-256"),
    Invocation(CONFIGS, "{b} --alter --entity-type users --entity-name alice --delete-config"
               " SCRAM-SHA-512"),
    Invocation(CONFIGS, "{b} --alter --entity-type users --entity-name alice --delete-config"
               " producer_byte_rate,consumer_byte_rate"),
    Invocation(CONFIGS, "{b} --alter --entity-type clients --entity-default --delete-config"
               " request_percentage"),
    Invocation(CONFIGS, "{b} --alter --entity-type groups --entity-name readers --add-config"
               " consumer.session.timeout.ms=50000"),
    Invocation(CONFIGS, "{b} --describe --entity-type groups --entity-name readers"),
    Invocation(CONFIGS, "{b} --describe --all --entity-type groups --entity-name readers",
               NO_STREAMS_GROUPS),
    Invocation(CONFIGS, "{b} --alter --entity-type groups --entity-name readers --add-config"
               " consumer.session.timeout.ms=1", OTHER_TEXT),
    Invocation(CONFIGS, "{b} --alter --entity-type groups --entity-name readers --delete-config"
               " consumer.session.timeout.ms"),
    *(Invocation(CONFIGS, f"{{b}} --alter --entity-type groups --entity-name {group} --add-config"
                 " share.auto.offset.reset=earliest")
      for group in ("shared", "tried", "dropped", "measured", "verified-3", "sharing")),
    Invocation(CONFIGS, "{b} --describe --entity-type groups --entity-name shared"),
    Invocation(CONFIGS, "{b} --alter --entity-type groups --entity-name shared --add-config"
               " share.auto.offset.reset=first", OTHER_TEXT),
    Invocation(CONFIGS, "{b} --alter --entity-type groups --entity-name shared --add-config"
               " share.record.lock.duration.ms=1", OTHER_TEXT),
    Invocation(CONFIGS, "{b} --alter --entity-type groups --entity-name shared --add-config"
               " share.delivery.count.limit=4,share.isolation.level=read_committed"),
    Invocation(CONFIGS, "{b} --alter --entity-type groups --entity-name shared --delete-config"
               " share.delivery.count.limit,share.isolation.level"),
    Invocation(CONFIGS, "{b} --describe --entity-type broker-loggers --entity-name 1",
               OTHER_SETTINGS),
    Invocation(CONFIGS, "{b} --alter --entity-type broker-loggers --entity-name 1 --add-config"
               " no.such.logger=DEBUG"),
    Invocation(CONFIGS, "{b} --alter --entity-type client-metrics --entity-name slow --add-config"
               " interval.ms=5000,metrics=org.apache.kafka.producer."),
    Invocation(CONFIGS, "{b} --describe --entity-type client-metrics --entity-name slow",
               any_order=True),
    Invocation(CONFIGS, "{b} --describe --entity-type client-metrics", any_order=True),
    Invocation(CONFIGS, "{b} --alter --entity-type client-metrics --entity-name slow --add-config"
               " interval.ms=1"),
    Invocation(CONFIGS, "{b} --alter --entity-type client-metrics --entity-name slow"
               " --delete-config interval.ms,metrics"),
    Invocation(CLIENT_METRICS, "{b} --alter --name fast --interval 1000 --metrics"
               " org.apache.kafka.consumer. --match client_id=app.*"),
    Invocation(CLIENT_METRICS, "{b} --list"),
    Invocation(CLIENT_METRICS, "{b} --describe --name fast"),
    Invocation(CLIENT_METRICS, "{b} --describe --name unknown"),
    Invocation(CLIENT_METRICS, "{b} --describe"),
    Invocation(CLIENT_METRICS, "{b} --delete --name fast"),
    Invocation(CLIENT_METRICS, "{b} --delete --name unknown"),
)  # fmt: skip

ACL_ROWS = (
    Invocation(ACLS, "{b} --list"),
    Invocation(ACLS, "{b} --add --allow-principal User:alice --operation Read --topic orders"),
    Invocation(ACLS, "{b} --add --allow-principal User:bob --producer --topic ord"
               " --resource-pattern-type prefixed", any_order=True),
    Invocation(ACLS, "{b} --add --allow-principal User:bob --consumer --topic orders --group app",
               any_order=True),
    Invocation(ACLS, "{b} --add --deny-principal User:eve --deny-host 10.0.0.1 --operation All"
               " --cluster"),
    Invocation(ACLS, "{b} --add --allow-principal User:eve --operation Describe"
               " --transactional-id t1"),
    Invocation(ACLS, "{b} --add --allow-principal User:eve --operation Describe"
               " --delegation-token t1"),
    Invocation(ACLS, "{b} --add --allow-principal User:eve --operation CreateTokens"
               " --user-principal User:ann"),
    Invocation(ACLS, "{b} --add --allow-principal eve --operation Read --topic orders"),
    Invocation(ACLS, "{b} --list --topic orders", any_order=True),
    Invocation(ACLS, "{b} --list --topic orders --resource-pattern-type match", any_order=True),
    Invocation(ACLS, "{b} --list --principal User:eve", any_order=True),
    Invocation(ACLS, "{b} --list", any_order=True),
    Invocation(ACLS, "{b} --remove --force --topic ord --resource-pattern-type prefixed"),
    Invocation(ACLS, "{b} --remove --force --allow-principal User:bob --consumer --topic orders"
               " --group app"),
    Invocation(ACLS, "{b} --remove --force --cluster"),
    Invocation(ACLS, "{b} --list", any_order=True),
    Invocation(ACLS, "{c} --list", any_order=True),
)  # fmt: skip

RECORD_ROWS = (
    Invocation(PRODUCER, "{b} --topic orders --reader-property parse.key=true"
               " --reader-property key.separator=:", given="a:1\nb:2\nc:3\nd:4\ne:5\nf:6\n"),
    Invocation(PRODUCER, "{b} --topic compacted --reader-property parse.key=true"
               " --reader-property key.separator=: --compression-codec zstd --sync",
               given="a:1\na:2\n"),
    Invocation(PRODUCER, "{b} --topic events --reader-property parse.headers=true"
               " --command-property acks=all", given="h:1,i:2\tvalue\n"),
    Invocation(PRODUCER, "{b} --topic numbers", given="1\n2\n3\n"),
    Invocation(PRODUCER, "{b} --topic no/slash", given="value\n"),
    Invocation(CONSUMER, "{b} --topic events --from-beginning --max-messages 1"
               " --formatter-property print.key=true --formatter-property print.headers=true"
               " --formatter-property print.offset=true --formatter-property print.partition=true"
               " --formatter-property print.epoch=true --formatter-property print.delivery=true"),
    Invocation(CONSUMER, "{b} --topic orders --from-beginning --max-messages 6 --group readers"
               " --formatter-property print.key=true", any_order=True),
    Invocation(CONSUMER, "{b} --topic orders --partition 0 --offset 1 --timeout-ms 1000"),
    Invocation(CONSUMER, "{b} --topic orders --partition 0 --offset latest --timeout-ms 1000"),
    Invocation(CONSUMER, "{b} --topic orders --partition 9 --timeout-ms 1000"),
    Invocation(CONSUMER, "{b} --include 'ord.*|eve.*' --from-beginning --max-messages 7"
               " --isolation-level read_committed --consumer-property"
               " group.protocol=consumer --group all", any_order=True),
    Invocation(SHARE_CONSUMER, "{b} --topic orders --group shared --max-messages 6"
               " --timeout-ms 10000 --formatter-property print.key=true"
               " --formatter-property print.delivery=true --formatter-property print.offset=true"
               " --formatter-property print.partition=true", any_order=True, seconds=30),
    Invocation(SHARE_CONSUMER, "{b} --topic orders --group shared --timeout-ms 1000", seconds=30),
    Invocation(SHARE_CONSUMER, "{b} --topic events --group tried --max-messages 1 --release"
               " --timeout-ms 10000 --formatter-property print.delivery=true", seconds=30),
    Invocation(SHARE_CONSUMER, "{b} --topic events --group tried --max-messages 1 --reject"
               " --timeout-ms 10000 --formatter-property print.delivery=true", seconds=30),
    Invocation(SHARE_CONSUMER, "{b} --topic events --group tried --timeout-ms 1000", seconds=30),
    Invocation(SHARE_CONSUMER, "{b} --topic numbers --group dropped --max-messages 3"
               " --reject-message-on-error --enable-systest-events --timeout-ms 10000",
               any_order=True, seconds=30),
    Invocation(SHARE_CONSUMER, "{b} --topic unknown --group shared --timeout-ms 1000",
               seconds=30),
    Invocation(SHARE_CONSUMER, "{b} --topic orders --group readers --timeout-ms 1000",
               seconds=30),
    Invocation(SHARE_CONSUMER, "{b} --topic orders --release --reject"),
    Invocation(SHARE_CONSUMER, "{b} --group shared"),
    Invocation("VerifiableProducer", "{b} --topic events --max-messages 5 --throughput 100",
               is_alone=True, any_numbers=True),
    Invocation("VerifiableProducer", "{b} --topic events --max-messages 2 --acks 1"
               " --message-create-time 1000 --repeating-keys 2 --value-prefix 3", is_alone=True,
               any_numbers=True),
    Invocation("VerifiableConsumer", "{b} --topic events --group-id verified --max-messages 5"
               " --reset-policy earliest --verbose", is_alone=True),
    Invocation("VerifiableConsumer", "{b} --topic events --group-id verified-2 --max-messages 5"
               " --reset-policy earliest --group-protocol consumer --enable-autocommit",
               is_alone=True),
    Invocation("VerifiableShareConsumer", "{b} --topic events --group-id verified-3"
               " --max-messages 5 --offset-reset-strategy earliest --acknowledgement-mode sync",
               is_alone=True, seconds=20, any_numbers=True),
    Invocation("ProducerPerformance", "{b} --topic events --num-records 100 --record-size 10"
               " --throughput -1", any_numbers=True),
    Invocation("ProducerPerformance", "{b} --topic events --num-records 20 --record-size 10"
               " --throughput -1 --transactional-id performance",
               any_numbers=True),
    Invocation("ConsumerPerformance", "{b} --topic events --num-records 100 --timeout 10000",
               any_numbers=True),
    Invocation("ShareConsumerPerformance", "{b} --topic events --num-records 100 --timeout 10000"
               " --group measured", any_numbers=True, seconds=30),
    Invocation("ShareConsumerPerformance", "{b} --topic events --num-records 10 --timeout 1000"
               " --group measured --show-detailed-stats --hide-header", any_numbers=True,
               seconds=30),
    Invocation("ShareConsumerPerformance", "{b} --topic unknown --num-records 1 --timeout 1000",
               any_numbers=True, seconds=30),
    Invocation("ShareConsumerPerformance", "{b} --topic events"),
    Invocation("EndToEndLatency", "{b} --topic events --num-records 10 --producer-acks all"
               " --record-size 20", any_numbers=True),
    Invocation("LogCompactionTester", "{b} --messages 500 --topics 1 --duplicates 5"
               " --sleep 3", any_numbers=True),
    Invocation("TransactionalMessageCopier", "--broker-list {brokers} --input-topic orders"
               " --input-partition 0 --output-topic copies --max-messages 2 --consumer-group copy"
               " --transaction-size 2 --transactional-id copier", any_numbers=True),
    Invocation("ReplicaVerificationTool", "--broker-list {brokers} --topics-include orders"
               " --report-interval-ms 1000", is_alone=True, seconds=12, any_order=True),
    Invocation("StreamsResetter", "{b} --application-id app --input-topics orders --dry-run"),
    Invocation("StreamsResetter", "{b} --application-id app --input-topics unknown"),
    Invocation("StreamsResetter", "{b} --application-id app --input-topics orders"),
    Invocation("ClientCompatibilityTest", "{b} --topic fresh --cluster-id-supported true"
               " --create-topics-supported true --describe-acls-supported true"
               " --describe-configs-supported true --expect-record-too-large-exception false"
               " --idempotent-producer-supported true"
               " --num-cluster-nodes {n} --offsets-for-times-supported true", any_numbers=True),
    Invocation("OAuthCompatibilityTool", "--clientId a", is_alone=True),
    Invocation("JmxTool", "--one-time --jmx-url service:jmx:rmi:///jndi/rmi://127.0.0.1:1/jmxrmi",
               any_order=True),
    Invocation("ConnectPluginPath", "list --plugin-path {dir}"),
    Invocation("ConnectInternalTopics", "create --worker-config {dir}/worker.properties"),
    Invocation("ConnectInternalTopics", "create --worker-config {dir}/worker.properties"),
)  # fmt: skip

OFFSET_ROWS = (
    Invocation(OFFSETS, "{b} --topic orders"),
    Invocation(OFFSETS, "{b} --topic orders --time earliest"),
    Invocation(OFFSETS, "{b} --topic orders --time max-timestamp", any_numbers=True),
    Invocation(OFFSETS, "{b} --topic orders --time earliest-local"),
    Invocation(OFFSETS, "{b} --topic orders --time latest-tiered"),
    Invocation(OFFSETS, "{b} --topic orders --time earliest-pending-upload"),
    Invocation(OFFSETS, "{b} --topic orders --time 1000"),
    Invocation(OFFSETS, "{b} --topic-partitions orders:0,events:0-"),
    Invocation(OFFSETS, "{b} --topic unknown"),
    Invocation(OFFSETS, "{b} --exclude-internal-topics"),
    Invocation(DELETE_RECORDS, "{b} --offset-json-file {dir}/delete.json"),
    Invocation(DELETE_RECORDS, "{b} --offset-json-file {dir}/delete-far.json"),
    Invocation(DELETE_RECORDS, "{b} --offset-json-file {dir}/delete-twice.json"),
    Invocation(OFFSETS, "{b} --topic orders --time -2"),
    Invocation(LOG_DIRS, "{b} --describe --topic-list orders,events", any_numbers=True),
    Invocation(LOG_DIRS, "{b} --describe --broker-list 1,77 --topic-list orders"),
    Invocation(LOG_DIRS, "{b} --describe --broker-list 1 --topic-list unknown"),
    Invocation(TRANSACTIONS, "{b} list", any_order=True, any_numbers=True),
    Invocation(TRANSACTIONS, "{b} list --duration-filter 1", any_order=True,
               any_numbers=True),
    Invocation(TRANSACTIONS, "{b} list --transactional-id-pattern cop.*", any_numbers=True),
    Invocation(TRANSACTIONS, "{b} list --transactional-id-pattern [", any_numbers=True),
    Invocation(TRANSACTIONS, "{b} describe --transactional-id copier", any_numbers=True),
    Invocation(TRANSACTIONS, "{b} describe --transactional-id unknown"),
    Invocation(TRANSACTIONS, "{b} describe-producers --topic copies --partition 0",
               any_numbers=True),
    Invocation(TRANSACTIONS, "{b} describe-producers --topic copies --partition 0 --broker-id 1",
               any_numbers=True),
    Invocation(TRANSACTIONS, "{b} find-hanging --broker-id 1"),
    Invocation(TRANSACTIONS, "{b} find-hanging --topic copies"),
    Invocation(TRANSACTIONS, "{b} abort --topic copies --partition 0 --start-offset 0"),
    Invocation(TRANSACTIONS, "{b} abort --topic copies --partition 0 --producer-id 1"
               " --producer-epoch 0 --coordinator-epoch 0"),
    Invocation(TRANSACTIONS, "{b} forceTerminateTransaction --transactionalId unknown"),
    Invocation(TRANSACTIONS, "{b} forceTerminateTransaction --transactionalId copier"),
)  # fmt: skip

GROUP_ROWS = (
    Invocation(GROUPS, "{b} --list", any_order=True),
    Invocation(GROUPS, "{b} --list --consumer", any_order=True),
    Invocation(GROUPS, "{b} --list --share", any_order=True),
    Invocation(GROUPS, "{b} --list --group-type share", any_order=True),
    Invocation(GROUPS, "{b} --list --streams"),
    Invocation(GROUPS, "{b} --list --group-type classic", any_order=True),
    Invocation(GROUPS, "{b} --list --protocol consumer", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --list", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --list --state", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --list --state empty --type classic", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --describe --group readers", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --describe --group readers --state"),
    Invocation(CONSUMER_GROUPS, "{b} --describe --group readers --members --verbose"),
    Invocation(CONSUMER_GROUPS, "{b} --describe --group all --offsets --verbose", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --describe --group all --state --verbose",
               OTHER_EPOCHS),
    Invocation(CONSUMER_GROUPS, "{b} --describe --group unknown"),
    Invocation(CONSUMER_GROUPS, "{b} --describe --all-groups --state", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --reset-offsets --group readers --topic orders --to-earliest",
               any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --reset-offsets --group readers --topic orders:0"
               " --shift-by -1 --execute", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --reset-offsets --group readers --topic orders --to-offset 99"
               " --dry-run", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --reset-offsets --group readers --topic orders --to-current"
               " --export", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --reset-offsets --group readers --from-file {dir}/offsets.csv"
               " --execute", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --reset-offsets --group new-one --topic orders --to-latest"
               " --execute", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --reset-offsets --group readers --topic orders --to-datetime"
               " 2020-01-01T00:00:00.000 --dry-run", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --reset-offsets --group readers --topic orders --by-duration"
               " PT1H --dry-run", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --reset-offsets --group readers --topic unknown --to-latest"),
    Invocation(CONSUMER_GROUPS, "{b} --delete-offsets --group readers --topic orders:1"),
    Invocation(CONSUMER_GROUPS, "{b} --delete-offsets --group readers --topic unknown"),
    Invocation(CONSUMER_GROUPS, "{b} --delete-offsets --group unknown --topic orders"),
    Invocation(CONSUMER_GROUPS, "{b} --validate-regex '[a-z'"),
    Invocation(CONSUMER_GROUPS, "{b} --validate-regex 'ord.*'"),
    Invocation(CONSUMER_GROUPS, "{b} --delete --group unknown"),
    Invocation(CONSUMER_GROUPS, "{b} --delete --group new-one"),
    Invocation(SHARE_GROUPS, "{b} --list", any_order=True),
    Invocation(SHARE_GROUPS, "{b} --list --state", any_order=True),
    Invocation(SHARE_GROUPS, "{b} --list --state empty", any_order=True),
    Invocation(SHARE_GROUPS, "{b} --list --state stable"),
    Invocation(SHARE_GROUPS, "{b} --list --state assigning"),
    Invocation(SHARE_GROUPS, "{b} --describe --group shared", OTHER_START_OFFSETS,
               any_order=True),
    Invocation(SHARE_GROUPS, "{b} --describe --group shared --offsets --verbose",
               OTHER_START_OFFSETS, any_order=True),
    Invocation(SHARE_GROUPS, "{b} --describe --group shared --state"),
    Invocation(SHARE_GROUPS, "{b} --describe --group shared --state --verbose", OTHER_EPOCHS),
    Invocation(SHARE_GROUPS, "{b} --describe --group shared --members"),
    Invocation(SHARE_GROUPS, "{b} --describe --group shared --members --verbose"),
    Invocation(SHARE_GROUPS, "{b} --describe --group shared --members --state"),
    Invocation(SHARE_GROUPS, "{b} --describe --group tried --group dropped",
               OTHER_START_OFFSETS, any_order=True),
    Invocation(SHARE_GROUPS, "{b} --describe --all-groups --state", any_order=True),
    Invocation(SHARE_GROUPS, "{b} --describe --all-groups", OTHER_START_OFFSETS, any_order=True),
    Invocation(SHARE_GROUPS, "{b} --describe --group unknown"),
    Invocation(SHARE_GROUPS, "{b} --describe --group unknown --members"),
    Invocation(SHARE_GROUPS, "{b} --describe --group readers"),
    Invocation(SHARE_GROUPS, "{b} --describe"),
    *(Invocation(SHARE_GROUPS, f"{{b}} --reset-offsets --group shared {change}", any_order=True)
      for change in (
          "--topic orders --to-earliest --dry-run",
          "--topic orders --to-earliest",
          "--topic orders --to-earliest --execute",
          "--topic orders:0 --to-latest --execute",
          "--topic orders:0 --to-offset 1 --execute",
          "--topic orders --to-offset 99 --execute",
          "--topic orders --to-current --dry-run",
          "--topic orders --to-current --export --dry-run",
          "--all-topics --to-latest --execute",
          "--topic orders --to-datetime 2020-01-01T00:00:00.000 --execute",
          "--topic orders --to-datetime tomorrow --execute",
          "--topic orders:9 --to-earliest --execute",
          "--topic unknown --to-earliest --execute",
          "--topic events --to-earliest --execute",
          "--from-file {dir}/offsets.csv --execute",
          "--to-earliest --execute",
      )),
    Invocation(SHARE_GROUPS, "{b} --reset-offsets --group new-share --topic orders --to-latest"
               " --execute", any_order=True),
    Invocation(SHARE_GROUPS, "{b} --reset-offsets --group readers --topic orders --to-latest"
               " --execute"),
    Invocation(SHARE_GROUPS, "{b} --describe --group shared --offsets", any_order=True),
    Invocation(SHARE_CONSUMER, "{b} --topic orders --group shared --max-messages 3"
               " --timeout-ms 10000", any_order=True, seconds=30),
    Invocation(SHARE_GROUPS, "{b} --delete-offsets --group shared --topic events"),
    Invocation(SHARE_GROUPS, "{b} --delete-offsets --group shared --topic events"),
    Invocation(SHARE_GROUPS, "{b} --delete-offsets --group shared --topic unknown"),
    Invocation(SHARE_GROUPS, "{b} --delete-offsets --group unknown --topic orders"),
    Invocation(SHARE_GROUPS, "{b} --delete-offsets --group readers --topic orders"),
    Invocation(SHARE_GROUPS, "{b} --delete-offsets --group shared"),
    Invocation(SHARE_GROUPS, "{b} --delete --group new-share"),
    Invocation(SHARE_GROUPS, "{b} --delete --group new-share"),
    Invocation(SHARE_GROUPS, "{b} --delete --group readers"),
    Invocation(SHARE_GROUPS, "{b} --delete"),
    Invocation(CONSUMER_GROUPS, "{b} --describe --group shared"),
    Invocation(CONSUMER_GROUPS, "{b} --delete --group tried"),
    Invocation(GROUPS, "{b} --list --share", any_order=True),
    Invocation(STREAMS_GROUPS, "{b} --list"),
    Invocation(STREAMS_GROUPS, "{b} --describe --group app", NO_STREAMS_GROUPS),
    Invocation(STREAMS_GROUPS, "{b} --describe --all-groups"),
    Invocation(STREAMS_GROUPS, "{b} --delete --group app"),
    Invocation(STREAMS_GROUPS, "{b} --reset-offsets --group app --input-topic orders"
               " --to-earliest --execute", NO_STREAMS_GROUPS),
    Invocation(STREAMS_GROUPS, "{b} --delete-offsets --group app --input-topic orders"),
    Invocation(STREAMS_GROUPS, "{b} --describe --group readers", NO_STREAMS_GROUPS),
)  # fmt: skip

MEMBER_ROWS = (
    Invocation(GROUPS, "{b} --list", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --list --state stable", any_order=True),
    Invocation(CONSUMER_GROUPS, "{b} --describe --group classic", any_order=True,
               any_numbers=True),
    Invocation(CONSUMER_GROUPS, "{b} --describe --group classic --members --verbose"),
    Invocation(CONSUMER_GROUPS, "{b} --describe --group classic --state --verbose"),
    Invocation(CONSUMER_GROUPS, "{b} --describe --group consumer", any_order=True,
               any_numbers=True),
    Invocation(CONSUMER_GROUPS, "{b} --describe --group consumer --members --verbose",
               OTHER_EPOCHS),
    Invocation(CONSUMER_GROUPS, "{b} --describe --group consumer --state --verbose",
               OTHER_EPOCHS),
    Invocation(CONSUMER_GROUPS, "{b} --reset-offsets --group classic --topic orders --to-earliest"
               " --execute"),
    Invocation(CONSUMER_GROUPS, "{b} --reset-offsets --group consumer --topic orders --to-earliest"
               " --execute"),
    Invocation(CONSUMER_GROUPS, "{b} --delete --group classic"),
    Invocation(CONSUMER_GROUPS, "{b} --delete --group consumer"),
    Invocation(CONSUMER_GROUPS, "{b} --delete-offsets --group classic --topic orders"),
    Invocation(CONSUMER_GROUPS, "{b} --delete-offsets --group consumer --topic orders"),
    Invocation(SHARE_GROUPS, "{b} --list --state stable"),
    Invocation(SHARE_GROUPS, "{b} --describe --group sharing", OTHER_START_OFFSETS,
               any_order=True),
    Invocation(SHARE_GROUPS, "{b} --describe --group sharing --members"),
    Invocation(SHARE_GROUPS, "{b} --describe --group sharing --members --verbose",
               OTHER_EPOCHS),
    Invocation(SHARE_GROUPS, "{b} --describe --group sharing --state --verbose", OTHER_EPOCHS),
    Invocation(SHARE_GROUPS, "{b} --reset-offsets --group sharing --topic numbers --to-earliest"
               " --execute"),
    Invocation(SHARE_GROUPS, "{b} --delete-offsets --group sharing --topic numbers"),
    Invocation(SHARE_GROUPS, "{b} --delete --group sharing"),
    Invocation(SHARE_GROUPS, "{b} --delete --all-groups", any_order=True),
)  # fmt: skip

UNKNOWN_DIRECTORY = "AAAAAAAAAAAAAAAAAAAAAQ"
CLUSTER_ROWS = (
    Invocation(CLUSTER, "cluster-id {b}"),
    Invocation(CLUSTER, "cluster-id {c}"),
    Invocation(CLUSTER, "list-endpoints {b}"),
    Invocation(CLUSTER, "list-endpoints {b} --include-fenced-brokers"),
    Invocation(CLUSTER, "list-endpoints {c}"),
    Invocation(CLUSTER, "api-versions {b}", NO_STREAMS_GROUPS),
    Invocation(CLUSTER, "api-versions {c}", NODES_USE_GRPC),
    Invocation(CLUSTER, "unregister {b} --id 55"),
    Invocation(CLUSTER, "unregister {c} --id 55"),
    Invocation(CLUSTER, "unregister-controller {c} --id 55"),
    Invocation("BrokerApiVersionsCommand", "{b}", NO_STREAMS_GROUPS),
    Invocation("BrokerApiVersionsCommand", "{c}"),
    Invocation(FEATURES, "{b} describe", OTHER_FEATURES),
    Invocation(FEATURES, "{c} describe", OTHER_FEATURES),
    Invocation(FEATURES, "{b} version-mapping"),
    Invocation(FEATURES, "{b} version-mapping --release-version 4.3-IV0"),
    Invocation(FEATURES, "{b} feature-dependencies --feature transaction.version=2"),
    Invocation(FEATURES, "{b} upgrade --feature transaction.version=1"),
    Invocation(FEATURES, "{b} downgrade --feature transaction.version=1"),
    Invocation(FEATURES, "{b} upgrade --feature transaction.version=2 --dry-run"),
    Invocation(FEATURES, "{b} upgrade --feature transaction.version=2"),
    Invocation(FEATURES, "{b} upgrade --feature transaction.version=9"),
    Invocation(FEATURES, "{b} upgrade --feature no.version=1"),
    Invocation(FEATURES, "{b} downgrade --metadata 3.3-IV0"),
    Invocation(FEATURES, "{b} disable --feature group.version --dry-run"),
    Invocation(FEATURES, "{c} upgrade --feature transaction.version=9"),
    Invocation(QUORUM, "{b} describe --status", any_numbers=True),
    Invocation(QUORUM, "{c} describe --status", any_numbers=True),
    Invocation(QUORUM, "{b} describe --replication", any_numbers=True, any_order=True),
    Invocation(QUORUM, "{b} describe --replication --human-readable", any_numbers=True,
               any_order=True),
    Invocation(QUORUM, "{b} remove-controller --controller-id 9 --controller-directory-id "
               + UNKNOWN_DIRECTORY, OTHER_TEXT),
    Invocation(QUORUM, "{c} remove-controller --controller-id 9 --controller-directory-id "
               + UNKNOWN_DIRECTORY, OTHER_TEXT),
    Invocation(QUORUM, "{b} --command-config {controller_file} add-controller", OTHER_TEXT),
    Invocation(ELECTION, "{b} --election-type preferred --topic orders --partition 0"),
    Invocation(ELECTION, "{b} --election-type preferred --topic orders --partition 9"),
    Invocation(ELECTION, "{b} --election-type preferred --path-to-json-file {dir}/elect.json"),
    Invocation(ELECTION, "{b} --election-type unclean --path-to-json-file"
               " {dir}/elect-unknown.json"),
    Invocation(ELECTION, "{b} --election-type unclean --topic orders --partition 0"),
    Invocation(ELECTION, "{b} --election-type preferred --all-topic-partitions"),
    Invocation(REASSIGN, "{b} --list"),
    Invocation(REASSIGN, "{c} --list"),
    Invocation(REASSIGN, "{b} --generate --topics-to-move-json-file {dir}/topics.json"
               " --broker-list 1"),
    Invocation(REASSIGN, "{b} --generate --topics-to-move-json-file {dir}/topics-unknown.json"
               " --broker-list 1"),
    Invocation(REASSIGN, "{b} --execute --reassignment-json-file {dir}/move.json --throttle"
               " 100000"),
    Invocation(REASSIGN, "{b} --verify --reassignment-json-file {dir}/move.json"
               " --preserve-throttles"),
    Invocation(REASSIGN, "{b} --verify --reassignment-json-file {dir}/move.json"),
    Invocation(REASSIGN, "{b} --cancel --reassignment-json-file {dir}/move.json"),
    Invocation(REASSIGN, "{b} --execute --reassignment-json-file {dir}/move-unknown.json"),
    Invocation(REASSIGN, "{b} --execute --reassignment-json-file {dir}/move-away.json"),
    Invocation(TOKENS, "{b} --create --max-life-time-period -1 --command-config"
               " {dir}/slow.properties"),
    Invocation(TOKENS, "{b} --describe --command-config {dir}/slow.properties"),
    Invocation(TOKENS, "{b} --renew --renew-time-period -1 --hmac aaaa --command-config"
               " {dir}/slow.properties"),
    Invocation(TOKENS, "{b} --expire --expiry-time-period -1 --hmac aaaa --command-config"
               " {dir}/slow.properties"),
    Invocation(TOPICS, "{b} --delete --topic orders"),
    Invocation(TOPICS, "{b} --describe --topic orders"),
)  # fmt: skip

CONTROLLER_ROWS = (
    Invocation(FEATURES, "{c} upgrade --feature transaction.version=1"),
    Invocation(FEATURES, "{c} downgrade --feature transaction.version=1"),
    Invocation(FEATURES, "{c} upgrade --feature transaction.version=2 --dry-run"),
    Invocation(FEATURES, "{c} upgrade --feature transaction.version=2"),
    Invocation(FEATURES, "{c} upgrade --feature no.version=1"),
    Invocation(QUORUM, "{c} describe --replication", any_numbers=True, any_order=True),
    Invocation(CONFIGS, "{c} --alter --entity-type brokers --entity-default --add-config"
               " log.retention.ms=100000"),
    Invocation(CONFIGS, "{c} --describe --entity-type brokers --entity-default"),
    Invocation(CONFIGS, "{c} --alter --entity-type brokers --entity-default --delete-config"
               " log.retention.ms"),
    Invocation(CONFIGS, "{c} --alter --entity-type brokers --entity-default --add-config"
               " log.retention.ms=many", CHECKED_VALUES, codes_differ=True),
    Invocation(CONFIGS, "{c} --alter --entity-type brokers --entity-name 77 --add-config"
               " log.cleaner.threads=2", OTHER_TEXT),
    Invocation(CONFIGS, "{c} --alter --entity-type brokers --entity-name {controller} --add-config"
               " num.partitions=4", NO_SETTINGS_OF_CONTROLLERS, codes_differ=True),
    Invocation(CONFIGS, "{c} --describe --all --entity-type brokers --entity-name {controller}",
               OTHER_SETTINGS),
    Invocation(CONFIGS, "{c} --describe --entity-type broker-loggers --entity-name {controller}",
               OTHER_SETTINGS),
    Invocation(CONFIGS, "{c} --describe --entity-type topics --entity-name orders"),
    Invocation(ACLS, "{c} --add --allow-principal User:alice --operation Read --topic orders"),
    Invocation(ACLS, "{c} --list --topic orders", any_order=True),
    Invocation(ACLS, "{c} --remove --force --allow-principal User:alice --operation Read"
               " --topic orders"),
    Invocation(ACLS, "{c} --list --topic orders", any_order=True),
)  # fmt: skip

FILE_ROWS = (
    Invocation(DUMP, "--files {data}/orders-0/00000000000000000000.log --print-data-log",
               any_numbers=True),
    Invocation(DUMP, "--files {data}/orders-0/00000000000000000000.log --skip-record-metadata"
               " --deep-iteration", any_numbers=True),
    Invocation(DUMP, "--files {data}/orders-0/00000000000000000000.index --index-sanity-check",
               EMPTY_INDEX, codes_differ=True),
    Invocation(DUMP, "--files {data}/orders-0/00000000000000000000.timeindex", EMPTY_INDEX,
               codes_differ=True),
    Invocation(DUMP, "--files {data}/__consumer_offsets-0/00000000000000000000.log"
               " --offsets-decoder", OTHER_EPOCHS, any_numbers=True),
    Invocation(DUMP, "--files {data}/__transaction_state-0/00000000000000000000.log"
               " --transaction-log-decoder", OTHER_ORDER, any_numbers=True),
    Invocation(CONSUMER, "{b} --topic __consumer_offsets --from-beginning --timeout-ms 2000"
               f" --formatter {FORMATTERS}.OffsetsMessageFormatter", any_numbers=True,
               any_order=True),
    Invocation(CONSUMER, "{b} --topic __consumer_offsets --from-beginning --timeout-ms 2000"
               f" --formatter {FORMATTERS}.GroupMetadataMessageFormatter", OTHER_EPOCHS,
               any_numbers=True),
    Invocation(CONSUMER, "{b} --topic __transaction_state --from-beginning --timeout-ms 2000"
               f" --formatter {FORMATTERS}.TransactionLogMessageFormatter", OTHER_ORDER,
               any_numbers=True),
    Invocation(DUMP, "--files {data}/__share_group_state-0/00000000000000000000.log"
               " --share-group-state-decoder", OTHER_START_OFFSETS, any_numbers=True,
               any_order=True),
    Invocation(CONSUMER, "{b} --topic __share_group_state --from-beginning --timeout-ms 2000"
               " --formatter org.apache.kafka.tools.consumer.group.share"
               ".ShareGroupStateMessageFormatter", OTHER_START_OFFSETS, any_numbers=True,
               any_order=True),
    Invocation(STORAGE, "info -c {broker_file}"),
    Invocation(STORAGE, "info -c {controller_file}"),
    Invocation(STORAGE, "format -t ID -c {broker_file}"),
    Invocation(STORAGE, "format -t b3R0bGEtYmVzaWRlLW9uZQ -c {broker_file} --ignore-formatted"),
    Invocation(STORAGE, "random-uuid"),
    Invocation(STORAGE, "version-mapping"),
    Invocation(STORAGE, "feature-dependencies --feature transaction.version=2"),
)  # fmt: skip

BEFORE = (*TOPIC_ROWS, *CONFIG_ROWS, *ACL_ROWS, *RECORD_ROWS, *OFFSET_ROWS, *GROUP_ROWS)
"""Invocations without members of groups."""
WITH_MEMBERS = MEMBER_ROWS
"""Invocations while the groups `classic` and `consumer` have a member each."""
AFTER = (*FILE_ROWS, *CONTROLLER_ROWS, *CLUSTER_ROWS)
"""Invocations after the members left."""
