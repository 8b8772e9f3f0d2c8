# Completion of ottla in fish. Written by `make docs` from the parsers; a test compares it.
# To load it: ottla completion fish | source

function __ottla_row
    set -g __ottla_verbs
    set -g __ottla_summaries
    set -g __ottla_options
    set -g __ottla_values
    set -g __ottla_argument ''
    switch "$argv"
        case ''
            set -g __ottla_verbs 'up' 'down' 'status' 'explain' 'mcp' 'console' 'topic' 'user' 'token' 'acl' 'certificates' 'group' 'share' 'txn' 'quota' 'produce' 'consume' 'log' 'storage' 'server' 'controller' 'broker' 'cluster' 'top' 'backup' 'tier' 'bundle' 'cleaner' 'quorum' 'config' 'metrics' 'pipeline' 'export' 'table' 'sql' 'world' 'jepsen' 'bench' 'doctor' 'completion' 'version' 'help'
            set -g __ottla_summaries 'start a local cluster of real processes' 'stop the cluster of a directory' 'show whether the cluster is healthy, and why not' 'show why clients are denied, throttled or behind, and partitions not served' 'give agents the answers of ’explain’, by MCP' 'serve web pages of a cluster' 'create, list, describe, change and delete topics' 'list, add and delete users that log in by SCRAM' 'create, list, renew and end delegation tokens of users' 'list, create, delete and explain ACLs' 'create and renew certificates of nodes and users' 'list, describe, reset and delete groups of consumers' 'list, describe, reset and delete share groups' 'list and describe transactions, find and abort hanging ones' 'set limits of users and clients, and show which limit applies' 'write records from standard input' 'print records' 'inspect, verify and recover log directories without a broker' 'format directories' 'run one node from a .properties file, with the roles in its process.roles' 'run one controller from a .properties file' 'run one broker from a .properties file; or list, drain, cordon and remove brokers' 'balance brokers, finalize upgrades, change features' 'show the busiest brokers, topics, partitions and clients' 'copy topics and offsets of groups into files, and back' 'list, verify and restore the copies of segments in a bucket' 'write the cluster’s state into one archive for support' 'show the state of compaction, start a pass, retry failed logs' 'show and change the controllers’ quorum' 'show, change and compare settings' 'show and configure metrics that clients push (KIP-714)' 'run Spark on topics: archive, telemetry, or a pipeline of your own' 'export a topic into Parquet files, an Iceberg or a Delta table' 'maintain exported tables' 'query live topics in SQL, by DuckDB' 'run the deterministic simulation from seeds' 'test real processes under faults' 'measure any Kafka-compatible broker' 'diagnose this machine for Spark, and a cluster' 'print completion scripts for shells' 'print the version' 'show the help of a command'
            set -g __ottla_options
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'help'
            set -g __ottla_verbs 'up' 'down' 'status' 'explain' 'mcp' 'console' 'topic' 'user' 'token' 'acl' 'certificates' 'group' 'share' 'txn' 'quota' 'produce' 'consume' 'log' 'storage' 'server' 'controller' 'broker' 'cluster' 'top' 'backup' 'tier' 'bundle' 'cleaner' 'quorum' 'config' 'metrics' 'pipeline' 'export' 'table' 'sql' 'world' 'jepsen' 'bench' 'doctor' 'completion' 'version'
            set -g __ottla_summaries 'start a local cluster of real processes' 'stop the cluster of a directory' 'show whether the cluster is healthy, and why not' 'show why clients are denied, throttled or behind, and partitions not served' 'give agents the answers of ’explain’, by MCP' 'serve web pages of a cluster' 'create, list, describe, change and delete topics' 'list, add and delete users that log in by SCRAM' 'create, list, renew and end delegation tokens of users' 'list, create, delete and explain ACLs' 'create and renew certificates of nodes and users' 'list, describe, reset and delete groups of consumers' 'list, describe, reset and delete share groups' 'list and describe transactions, find and abort hanging ones' 'set limits of users and clients, and show which limit applies' 'write records from standard input' 'print records' 'inspect, verify and recover log directories without a broker' 'format directories' 'run one node from a .properties file, with the roles in its process.roles' 'run one controller from a .properties file' 'run one broker from a .properties file; or list, drain, cordon and remove brokers' 'balance brokers, finalize upgrades, change features' 'show the busiest brokers, topics, partitions and clients' 'copy topics and offsets of groups into files, and back' 'list, verify and restore the copies of segments in a bucket' 'write the cluster’s state into one archive for support' 'show the state of compaction, start a pass, retry failed logs' 'show and change the controllers’ quorum' 'show, change and compare settings' 'show and configure metrics that clients push (KIP-714)' 'run Spark on topics: archive, telemetry, or a pipeline of your own' 'export a topic into Parquet files, an Iceberg or a Delta table' 'maintain exported tables' 'query live topics in SQL, by DuckDB' 'run the deterministic simulation from seeds' 'test real processes under faults' 'measure any Kafka-compatible broker' 'diagnose this machine for Spark, and a cluster' 'print completion scripts for shells' 'print the version'
            set -g __ottla_options
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'up'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--controllers' '--brokers' '--host' '--port' '--dir' '--ephemeral' '--set' '--tier' '--no-console' '--restart' '--secure' '--detach'
            set -g __ottla_values '--controllers=' '--brokers=' '--host=' '--port=' '--dir=@dir' '--set=' '--tier='
            set -g __ottla_argument ''
        case 'down'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--dir'
            set -g __ottla_values '--dir=@dir'
            set -g __ottla_argument ''
        case 'status'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format' '--watch' '--under-replicated'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'explain'
            set -g __ottla_verbs 'health' 'denial' 'throttle' 'lag' 'unavailable' 'rebalance' 'slow' 'disk' 'transaction' 'delivery' 'top' 'plan'
            set -g __ottla_summaries 'show whether the cluster is healthy, and why not' 'show why a user may not do an operation' 'show which limits slow down clients or replicas now' 'show why a group is behind' 'show why partitions cannot be read or written' 'show why a group’s assignment is not finished' 'show why requests are slow' 'show why log directories are full or offline' 'show which open transactions hold up readers' 'show why a share group’s records are not delivered' 'show the busiest clients, topics, partitions and brokers' 'show the steps of a change of the cluster, without carrying it out'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'explain health'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'explain denial'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--topic' '--group' '--transactional-id' '--host' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--group=@groups' '--transactional-id=' '--host=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument 'read|write|create|delete|alter|describe|cluster-action|describe-configs|alter-configs|idempotent-write|create-tokens|describe-tokens|two-phase-commit'
        case 'explain throttle'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--user' '--client-id' '--ip' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--user=' '--client-id=' '--ip=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'explain lag'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'explain unavailable'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--topic' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'explain rebalance'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'explain slow'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--topic' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'explain disk'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--broker' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--broker=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'explain transaction'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'explain delivery'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'explain top'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--by' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--by=bytes|requests' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'explain plan'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--broker' '--controller' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--broker=' '--controller=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument 'balance|remove-broker|drain-broker|add-voter|remove-voter'
        case 'mcp'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--http' '--token-file' '--keystore' '--host-name'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--http=' '--token-file=@file' '--keystore=@file' '--host-name='
            set -g __ottla_argument ''
        case 'console'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--listen' '--port' '--tls-certificate' '--tls-key' '--host-name' '--login' '--proxy-header' '--proxy-address' '--role' '--role-file' '--default-role' '--hide-messages' '--registry' '--schema' '--reports'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--listen=' '--port=' '--tls-certificate=@file' '--tls-key=@file' '--host-name=' '--proxy-header=' '--proxy-address=' '--role=' '--role-file=@file' '--default-role=viewer|operator|admin' '--registry=' '--schema=@file' '--reports=@dir'
            set -g __ottla_argument ''
        case 'topic'
            set -g __ottla_verbs 'create' 'list' 'describe' 'delete' 'alter' 'add-partitions' 'trim' 'elect' 'reassign' 'storage'
            set -g __ottla_summaries 'create topics' 'list topics, with the bytes of all their replicas' 'show a topic’s partitions' 'delete topics' 'change settings of topics' 'add partitions to topics' 'delete the oldest records' 'give leadership to each partition’s first replica' 'move replicas to other brokers or log directories' 'show the bytes of a topic’s replicas'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'topic create'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '-p' '--partitions' '-r' '--replication-factor' '--replicas' '-c' '--config' '--if-not-exists' '--timeout' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '-p=' '--partitions=' '-r=' '--replication-factor=' '--replicas=' '-c=' '--config=' '--timeout=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'topic list'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--internal' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'topic describe'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'topic delete'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'topic alter'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '-c' '--config' '--unset' '--dry-run' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '-c=' '--config=' '--unset=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'topic add-partitions'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--by' '--to' '--dry-run' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--by=' '--to=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'topic trim'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '-p' '--partition' '--before' '--before-time' '--all' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '-p=' '--partition=' '--before=' '--before-time=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'topic elect'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '-p' '--partition' '--unclean' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '-p=' '--partition=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'topic reassign'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--brokers' '--evacuate' '--plan' '--cancel' '--verify' '--log-dir' '-r' '--replicas' '--dry-run' '--yes' '--execute' '--save' '--watch' '--throttle' '--log-dir-throttle' '--replica-alter-log-dirs-throttle' '--adapt' '--no-wait' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--brokers=' '--evacuate=' '--plan=@file' '--log-dir=' '-r=' '--replicas=' '--save=@file' '--throttle=' '--log-dir-throttle=' '--replica-alter-log-dirs-throttle=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'topic storage'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'user'
            set -g __ottla_verbs 'list' 'add' 'delete'
            set -g __ottla_summaries 'list users and their credentials' 'set the password of a user' 'delete the credentials of a user'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'user list'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'user add'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--mechanism' '--iterations' '--password-file' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config'
            set -g __ottla_values '--mechanism=SCRAM-SHA-256|SCRAM-SHA-512' '--iterations=' '--password-file=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file'
            set -g __ottla_argument ''
        case 'user delete'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--mechanism' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config'
            set -g __ottla_values '--mechanism=SCRAM-SHA-256|SCRAM-SHA-512' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file'
            set -g __ottla_argument ''
        case 'token'
            set -g __ottla_verbs 'create' 'list' 'renew' 'end'
            set -g __ottla_summaries 'create a token for the current user' 'list tokens, without their secrets' 'extend the lifetime of a token' 'end a token at once, and its sessions'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'token create'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--renewer' '--for' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--renewer=' '--for=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'token list'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--owner' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--owner=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'token renew'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--for' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config'
            set -g __ottla_values '--for=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file'
            set -g __ottla_argument ''
        case 'token end'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file'
            set -g __ottla_argument ''
        case 'acl'
            set -g __ottla_verbs 'list' 'create' 'delete' 'explain'
            set -g __ottla_summaries 'list ACLs' 'create ACLs that allow or deny operations' 'delete ACLs' 'show which ACL decides whether a user may do an operation'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'acl list'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--topic' '--group' '--transactional-id' '--delegation-token' '--user' '--cluster' '--prefixed' '--matching' '--principal' '--host' '--operation' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--group=@groups' '--transactional-id=' '--delegation-token=' '--user=' '--principal=' '--host=' '--operation=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'acl create'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--allow' '--deny' '--topic' '--group' '--transactional-id' '--delegation-token' '--user' '--cluster' '--prefixed' '--operation' '--producer' '--consumer' '--host' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--allow=' '--deny=' '--topic=@topics' '--group=@groups' '--transactional-id=' '--delegation-token=' '--user=' '--operation=' '--host=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'acl delete'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--topic' '--group' '--transactional-id' '--delegation-token' '--user' '--cluster' '--prefixed' '--matching' '--principal' '--host' '--operation' '--all' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--group=@groups' '--transactional-id=' '--delegation-token=' '--user=' '--principal=' '--host=' '--operation=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'acl explain'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--topic' '--group' '--transactional-id' '--delegation-token' '--user' '--cluster' '--prefixed' '--host' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--group=@groups' '--transactional-id=' '--delegation-token=' '--user=' '--host=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'certificates'
            set -g __ottla_verbs 'ca' 'node' 'user' 'renew'
            set -g __ottla_summaries 'create a certificate authority, of nodes or of users' 'issue the certificate of a node, which only that node can use' 'issue the certificate of a user' 'renew certificates that end soon, with new keys and the same names'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'certificates ca'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--users' '--name' '--format'
            set -g __ottla_values '--name=' '--format=table|json'
            set -g __ottla_argument '@dir'
        case 'certificates node'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--host' '--name' '--output' '--valid-for' '--ca' '--format'
            set -g __ottla_values '--host=' '--name=' '--output=@file' '--valid-for=' '--ca=@dir' '--format=table|json'
            set -g __ottla_argument ''
        case 'certificates user'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--output' '--valid-for' '--ca' '--format'
            set -g __ottla_values '--output=@file' '--valid-for=' '--ca=@dir' '--format=table|json'
            set -g __ottla_argument ''
        case 'certificates renew'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--within' '--all' '--valid-for' '--ca' '--format'
            set -g __ottla_values '--within=' '--valid-for=' '--ca=@dir' '--format=table|json'
            set -g __ottla_argument '@file'
        case 'group'
            set -g __ottla_verbs 'list' 'describe' 'members' 'lag' 'remove-member' 'reset' 'offset-delete' 'delete'
            set -g __ottla_summaries 'list groups' 'show state, members, and lag by topic' 'show a group’s members and their partitions' 'show how far a group, or each of all groups, is behind, in records and in time' 'remove members, so that a rebalance no longer waits for them' 'show and move a group’s committed offsets' 'show and delete committed offsets of topics or partitions' 'delete groups without members, with their offsets'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'group list'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--type' '--state' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--type=' '--state=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'group describe'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--isolation-level' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--isolation-level=read_uncommitted|read_committed' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'group members'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'group lag'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--watch' '--partitions' '--isolation-level' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--isolation-level=read_uncommitted|read_committed' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'group remove-member'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--instance-id' '--all' '--reason' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--instance-id=' '--reason=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'group reset'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--topic' '--to-earliest' '--to-latest' '--to-offset' '--to-datetime' '--by-duration' '--shift-by' '--to-current' '--from-file' '--export' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--to-offset=' '--to-datetime=' '--by-duration=' '--shift-by=' '--from-file=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'group offset-delete'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--topic' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'group delete'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'share'
            set -g __ottla_verbs 'list' 'describe' 'peek' 'redrive' 'offsets' 'reset' 'offset-delete' 'delete'
            set -g __ottla_summaries 'list share groups' 'show state, members, start offsets and lags' 'show the records in flight, with members and locks' 'move dead letters back to the partitions of their records' 'show the start offset and the lag of each partition' 'show and move the start offsets of a group' 'delete the offsets of topics' 'delete share groups without members, with their offsets'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'share list'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--state' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--state=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'share describe'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'share peek'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--topic' '--offset' '--limit' '--waiting' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--offset=' '--limit=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'share redrive'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--dead-letter-topic' '--topic' '--cause' '--since' '--until' '--limit' '--redrives-max' '--progress-topic' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--dead-letter-topic=@topics' '--topic=@topics' '--cause=rejected|exhausted' '--since=' '--until=' '--limit=' '--redrives-max=' '--progress-topic=@topics' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'share offsets'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'share reset'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--topic' '--to-earliest' '--to-latest' '--to-offset' '--to-datetime' '--by-duration' '--shift-by' '--to-current' '--from-file' '--export' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--to-offset=' '--to-datetime=' '--by-duration=' '--shift-by=' '--from-file=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'share offset-delete'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--topic' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'share delete'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@groups'
        case 'txn'
            set -g __ottla_verbs 'list' 'describe' 'producers' 'find-hanging' 'abort'
            set -g __ottla_summaries 'list transactional ids and their states' 'show transactions by their transactional ids' 'show the producers of partitions, and their open transactions' 'find transactions without a coordinator that would end them' 'abort a hanging transaction in one partition'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'txn list'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--state' '--producer-id' '--longer-than' '--match' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--state=' '--producer-id=' '--longer-than=' '--match=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'txn describe'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'txn producers'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'txn find-hanging'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--longer-than' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--longer-than=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'txn abort'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--start-offset' '--force' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--start-offset=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'quota'
            set -g __ottla_verbs 'list' 'set' 'delete' 'explain' 'usage' 'export' 'apply'
            set -g __ottla_summaries 'list every limit' 'set limits of a user, a client id, both, or an address' 'remove limits' 'show which limit applies to a client, and why' 'show the rates of limited clients, and which are throttled' 'print all limits as JSON, for ’apply’' 'set the limits of a file'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'quota list'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'quota set'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--user' '--client-id' '--ip' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--user=' '--client-id=' '--ip=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'quota delete'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--user' '--client-id' '--ip' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--user=' '--client-id=' '--ip=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'quota explain'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--user' '--client-id' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--user=' '--client-id=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'quota usage'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--limit' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--limit=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'quota export'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file'
            set -g __ottla_argument ''
        case 'quota apply'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '-f' '--file' '--prune' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '-f=@file' '--file=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'produce'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '-p' '--partition' '-K' '--key-delimiter' '-k' '--key' '-H' '--header' '-Z' '--null' '-z' '--codec' '--acks' '--create' '--transactional-id'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '-p=' '--partition=' '-K=' '--key-delimiter=' '-k=' '--key=' '-H=' '--header=' '-z=none|gzip|snappy|lz4|zstd' '--codec=none|gzip|snappy|lz4|zstd' '--acks=1|all' '--transactional-id='
            set -g __ottla_argument '@topics'
        case 'consume'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--regex' '-G' '--group' '--share' '-p' '--partition' '-o' '--offset' '-c' '--count' '-e' '--exit-at-end' '-K' '--key-delimiter' '-f' '--format-string' '--isolation-level' '-J' '--json'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '-G=@groups' '--group=@groups' '--share=@groups' '-p=' '--partition=' '-o=' '--offset=' '-c=' '--count=' '-K=' '--key-delimiter=' '-f=' '--format-string=' '--isolation-level=read_uncommitted|read_committed'
            set -g __ottla_argument '@topics'
        case 'log'
            set -g __ottla_verbs 'dump' 'index' 'snapshot' 'checkpoint' 'verify' 'recover'
            set -g __ottla_summaries 'show log, index, snapshot and checkpoint files' 'show indexes, and entries that do not match their log' 'show the state of a log’s producers' 'show checkpoints and identities' 'check every file of a log directory or a partition' 'show how a start after a crash recovers a log directory, and recover it'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'log dump'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--format' '--records' '--metadata' '--value-bytes'
            set -g __ottla_values '--format=table|json' '--value-bytes='
            set -g __ottla_argument '@file'
        case 'log index'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--format'
            set -g __ottla_values '--format=table|json'
            set -g __ottla_argument '@file'
        case 'log snapshot'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--format'
            set -g __ottla_values '--format=table|json'
            set -g __ottla_argument '@file'
        case 'log checkpoint'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--format'
            set -g __ottla_values '--format=table|json'
            set -g __ottla_argument '@file'
        case 'log verify'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--records' '--format'
            set -g __ottla_values '--format=table|json'
            set -g __ottla_argument '@dir'
        case 'log recover'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--all' '--dry-run' '--yes' '--execute' '--format'
            set -g __ottla_values '--format=table|json'
            set -g __ottla_argument '@dir'
        case 'storage'
            set -g __ottla_verbs 'format' 'random-uuid' 'accept-loss'
            set -g __ottla_summaries 'format the directories of one node' 'print an id for a new cluster or directory' 'have a controller vote again that lost metadata'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'storage format'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--config' '-c' '--cluster-id' '-t' '--initial-controllers' '-I' '--standalone' '-s' '--no-initial-controllers' '-N' '--ignore-formatted' '-g' '--release-version' '-r' '--feature' '-f' '--add-scram' '-S'
            set -g __ottla_values '--config=@file' '-c=@file' '--cluster-id=' '-t=' '--initial-controllers=' '-I=' '--release-version=' '-r=' '--feature=' '-f=' '--add-scram=' '-S='
            set -g __ottla_argument ''
        case 'storage random-uuid'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'storage accept-loss'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--config' '-c' '--dry-run' '--yes' '--execute'
            set -g __ottla_values '--config=@file' '-c=@file'
            set -g __ottla_argument ''
        case 'server'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--set' '--brokers-per-host'
            set -g __ottla_values '--set=' '--brokers-per-host='
            set -g __ottla_argument '@file'
        case 'controller'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--set'
            set -g __ottla_values '--set='
            set -g __ottla_argument '@file'
        case 'broker'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--set'
            set -g __ottla_values '--set='
            set -g __ottla_argument '@file'
        case 'broker list'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'broker describe'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'broker drain'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--undo' '--force' '--yes' '--host' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--host=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'broker cordon'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--undo' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'broker logdirs'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--replicas' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'broker unregister'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--force' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'broker remove'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--dry-run' '--yes' '--execute' '--throttle' '--timeout' '--stop-timeout' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--throttle=' '--timeout=' '--stop-timeout=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'cluster'
            set -g __ottla_verbs 'balance' 'features' 'upgrade'
            set -g __ottla_summaries 'make bytes, replicas and leaders of the brokers even' 'show, raise and lower the levels of features' 'show and end an upgrade'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'cluster balance'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--dry-run' '--yes' '--execute' '--status' '--cancel' '--save' '--throttle' '--moves-max' '--no-wait' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--save=@file' '--throttle=' '--moves-max=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'cluster features'
            set -g __ottla_verbs 'describe' 'upgrade' 'downgrade'
            set -g __ottla_summaries 'show the finalized and the supported levels' 'raise levels of features' 'lower levels of features'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'cluster features describe'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'cluster features upgrade'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'cluster features downgrade'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--unsafe' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'cluster upgrade'
            set -g __ottla_verbs 'status' 'finalize'
            set -g __ottla_summaries 'show the nodes’ releases, the finalized levels and the next ones' 'raise the levels to those of the new release, after which no node may return'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'cluster upgrade status'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'cluster upgrade finalize'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--feature' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--feature=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'top'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format' '--once' '--interval' '--rows'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json' '--interval=' '--rows='
            set -g __ottla_argument ''
        case 'backup'
            set -g __ottla_verbs 'create' 'verify' 'restore'
            set -g __ottla_summaries 'copy topics and the offsets of groups into files, while the cluster serves' 'check all files of a backup' 'write a backup into a cluster that has none of its topics'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'backup create'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--topic' '--timeout' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--timeout=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@dir'
        case 'backup verify'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--format'
            set -g __ottla_values '--format=table|json'
            set -g __ottla_argument '@dir'
        case 'backup restore'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--replication-factor' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--replication-factor=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@dir'
        case 'tier'
            set -g __ottla_verbs 'status' 'offload' 'topics' 'verify' 'explain' 'fetch' 'restore' 'cost'
            set -g __ottla_summaries 'show how far the topics of a running cluster are copied' 'delete the brokers’ local copies of segments that the object store has, now' 'list the topics in the bucket' 'check that the segments in the bucket are complete' 'show which segment has which records of a partition' 'download segments of a partition as files, for ’ottla log dump’' 'make a new cluster on this machine with the topics in the bucket' 'show what the segments in the bucket cost'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'tier status'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'tier offload'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--broker' '--dry-run' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--broker=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'tier topics'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--uri' '--config' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--uri=' '--config=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'tier verify'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--topic' '--full' '--uri' '--config' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--uri=' '--config=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'tier explain'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--uri' '--config' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--uri=' '--config=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'tier fetch'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--into' '--start-offset' '--end-offset' '--uri' '--config' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--into=@dir' '--start-offset=' '--end-offset=' '--uri=' '--config=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'tier restore'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--into' '--node' '--broker-ids' '--topic' '--allow-missing' '--in-place' '--old-cluster-is-gone' '--without-group-offsets' '--controllers' '--brokers' '--replication-factor' '--host' '--port' '--dry-run' '--yes' '--execute' '--uri' '--config' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--into=@dir' '--node=@file' '--broker-ids=' '--topic=@topics' '--controllers=' '--brokers=' '--replication-factor=' '--host=' '--port=' '--uri=' '--config=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'tier cost'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--storage-price' '--put-price' '--get-price' '--uri' '--config' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--storage-price=' '--put-price=' '--get-price=' '--uri=' '--config=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'bundle'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format' '-o' '--output'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json' '-o=@file' '--output=@file'
            set -g __ottla_argument ''
        case 'cleaner'
            set -g __ottla_verbs 'status' 'run' 'retry'
            set -g __ottla_summaries 'show dirty ratios, last passes, and the reasons why logs are not compacted' 'compact logs now, whatever their dirty ratio; their active segments are closed' 'retry logs whose compaction failed'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'cleaner status'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--failed' '--broker' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--broker=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'cleaner run'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--no-wait' '--timeout' '--broker' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--timeout=' '--broker=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'cleaner retry'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--broker' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--broker=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'quorum'
            set -g __ottla_verbs 'status' 'add' 'remove' 'replicas' 'replace' 'unregister' 'log' 'snapshot'
            set -g __ottla_summaries 'show leader, epoch, high watermark, voters and observers' 'add a controller, which runs and has caught up, to the voters' 'remove a controller from the voters' 'list voters and observers with lag and directory' 'replace a voter whose directory is lost, or by another controller' 'delete the registration of a controller that is gone' 'print changes of the metadata in words' 'have the active controller write a snapshot of the metadata now'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'quorum status'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-controller' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-controller=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'quorum add'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--dry-run' '--yes' '--execute' '--timeout' '--bootstrap-controller' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--timeout=' '--bootstrap-controller=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'quorum remove'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--directory' '--unregister' '--dry-run' '--yes' '--execute' '--timeout' '--bootstrap-controller' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--directory=' '--timeout=' '--bootstrap-controller=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'quorum replicas'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-controller' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-controller=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'quorum replace'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--by' '--address' '--unregister' '--dry-run' '--yes' '--execute' '--timeout' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--by=' '--address=' '--timeout=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'quorum unregister'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--dry-run' '--yes' '--execute' '--bootstrap-controller' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-controller=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'quorum log'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--follow' '-f' '--from' '--max' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--from=' '--max=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'quorum snapshot'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--dry-run' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'config'
            set -g __ottla_verbs 'get' 'set' 'diff'
            set -g __ottla_summaries 'show settings and their sources' 'change settings; running brokers apply them at once' 'show differences from the defaults, or between two of a kind'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'config get'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--all' '--topic' '--broker' '--cluster' '--group' '--client-metrics' '--loggers' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--broker=' '--group=@groups' '--client-metrics=' '--loggers=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'config set'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--unset' '--dry-run' '--yes' '--topic' '--broker' '--cluster' '--group' '--client-metrics' '--loggers' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--unset=' '--topic=@topics' '--broker=' '--group=@groups' '--client-metrics=' '--loggers=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'config diff'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--topic' '--broker' '--cluster' '--group' '--client-metrics' '--loggers' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--topic=@topics' '--broker=' '--group=@groups' '--client-metrics=' '--loggers=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'metrics'
            set -g __ottla_verbs 'subscriptions' 'clients' 'tail'
            set -g __ottla_summaries 'list, set and delete subscriptions to metrics of clients' 'show clients that push metrics, which ones, and how often' 'print metrics as clients push them'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'metrics subscriptions'
            set -g __ottla_verbs 'list' 'set' 'delete'
            set -g __ottla_summaries 'list subscriptions' 'create a subscription, or change the given parts of an existing one' 'delete a subscription'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'metrics subscriptions list'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'metrics subscriptions set'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--metrics' '--interval' '--match' '--dry-run' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--metrics=' '--interval=' '--match=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'metrics subscriptions delete'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--dry-run' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'metrics clients'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--client' '--broker' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--client=' '--broker=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'metrics tail'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--client' '--broker' '--metric' '--recent' '-c' '--count' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--client=' '--broker=' '--metric=' '-c=' '--count=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'pipeline'
            set -g __ottla_verbs 'archive' 'compact' 'telemetry' 'run' 'lag' 'zip'
            set -g __ottla_summaries 'write topics to Parquet by topic, date and hour, or one topic to a table' 'merge small files of an archive' 'aggregate metrics of clients over windows of time' 'run a pipeline of your own, from a Python file' 'show the lag of streaming queries' 'pack Ottla’s modules for spark-submit --py-files'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'pipeline archive'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--pattern' '-o' '--output' '--table-format' '--catalog-option' '--name' '--schema' '--transform' '--starting' '--option' '--headers' '--checkpoint' '--from' '--to' '--late' '--once' '--trigger' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format' '--master' '--conf' '--jars' '--packages' '--py-files' '--archives' '--spark-log'
            set -g __ottla_values '--pattern=' '-o=' '--output=' '--table-format=parquet|iceberg|delta' '--catalog-option=' '--name=' '--schema=' '--transform=' '--starting=' '--option=' '--checkpoint=@dir' '--from=' '--to=' '--late=' '--trigger=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json' '--master=' '--conf=' '--jars=' '--packages=' '--py-files=' '--archives=' '--spark-log=@file'
            set -g __ottla_argument '@topics'
        case 'pipeline compact'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--target-mib' '--keep' '--format'
            set -g __ottla_values '--target-mib=' '--keep=' '--format=table|json'
            set -g __ottla_argument '@dir'
        case 'pipeline telemetry'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '-o' '--output' '--output-topic' '--topic' '--window' '--lateness' '--by' '--metrics' '--name' '--starting' '--option' '--checkpoint' '--once' '--trigger' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format' '--master' '--conf' '--jars' '--packages' '--py-files' '--archives' '--spark-log'
            set -g __ottla_values '-o=@dir' '--output=@dir' '--output-topic=@topics' '--topic=@topics' '--window=' '--lateness=' '--by=' '--metrics=' '--name=' '--starting=' '--option=' '--checkpoint=@dir' '--trigger=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json' '--master=' '--conf=' '--jars=' '--packages=' '--py-files=' '--archives=' '--spark-log=@file'
            set -g __ottla_argument ''
        case 'pipeline run'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--once' '--trigger' '--format' '--master' '--conf' '--jars' '--packages' '--py-files' '--archives' '--spark-log'
            set -g __ottla_values '--trigger=' '--format=table|json' '--master=' '--conf=' '--jars=' '--packages=' '--py-files=' '--archives=' '--spark-log=@file'
            set -g __ottla_argument '@file'
        case 'pipeline lag'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--watch' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--isolation-level' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--isolation-level=read_uncommitted|read_committed' '--format=table|json'
            set -g __ottla_argument ''
        case 'pipeline zip'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument '@file'
        case 'export'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--to' '--follow' '--json' '--schema' '--isolation-level' '--file-size' '--commit-interval' '--compression' '--catalog-option' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--to=' '--schema=' '--isolation-level=read_committed|read_uncommitted' '--file-size=' '--commit-interval=' '--compression=zstd|snappy|lz4|gzip|none' '--catalog-option=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument '@topics'
        case 'table'
            set -g __ottla_verbs 'maintain'
            set -g __ottla_summaries 'merge small files of an exported table, expire snapshots, remove unused files'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'table maintain'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--file-size' '--keep' '--dry-run' '--catalog-option' '--format'
            set -g __ottla_values '--file-size=' '--keep=' '--catalog-option=' '--format=table|json'
            set -g __ottla_argument ''
        case 'sql'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--json' '--schema' '--isolation-level' '--memory' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--schema=' '--isolation-level=read_committed|read_uncommitted' '--memory=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json|csv'
            set -g __ottla_argument ''
        case 'world'
            set -g __ottla_verbs 'run' 'soak' 'soak-programs' 'replay' 'bugs' 'fuzz' 'list'
            set -g __ottla_summaries 'run seeds and judge every step' 'search with every engine in turn' 'search with property tests of programs that use Kafka' 'run a stored failure again and print its events; or the test of a program that failed' 'plant each known bug and measure the time until it is found' 'fuzz every parser of foreign bytes' 'list engines and their subjects'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'world run'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--engine' '--subject' '--seed' '--seeds' '--for' '--budget' '--mutant' '--keep' '--no-shrink' '--demand-rare' '--processes' '--format'
            set -g __ottla_values '--engine=walk|whole' '--subject=' '--seed=' '--seeds=' '--for=' '--budget=' '--mutant=' '--keep=' '--processes=' '--format=table|json'
            set -g __ottla_argument ''
        case 'world soak'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--for' '--seed' '--out' '--processes' '--format'
            set -g __ottla_values '--for=' '--seed=' '--out=@dir' '--processes=' '--format=table|markdown|json'
            set -g __ottla_argument ''
        case 'world soak-programs'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--for' '--seed' '--corpus' '--processes' '--format'
            set -g __ottla_values '--for=' '--seed=' '--corpus=@dir' '--processes=' '--format=table|json'
            set -g __ottla_argument ''
        case 'world replay'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--all' '--format'
            set -g __ottla_values '--format=table|json'
            set -g __ottla_argument '@file'
        case 'world bugs'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--for' '--processes' '--format'
            set -g __ottla_values '--for=' '--processes=' '--format=table|json'
            set -g __ottla_argument ''
        case 'world fuzz'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--target' '--list' '--for' '--seed' '--driver' '--keep' '--format'
            set -g __ottla_values '--target=' '--for=' '--seed=' '--driver=atheris|plain' '--keep=@dir' '--format=table|json'
            set -g __ottla_argument ''
        case 'world list'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--format'
            set -g __ottla_values '--format=table|json'
            set -g __ottla_argument ''
        case 'jepsen'
            set -g __ottla_verbs 'run' 'run-all' 'bugs' 'analyze' 'serve' 'list'
            set -g __ottla_summaries 'run one test: load, faults, verdict' 'run every workload under every nemesis, without those that have a verdict' 'plant bugs, and check that each is found' 'judge stored runs again' 'serve stored reports to browsers of this machine' 'list workloads, nemeses and runs'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'jepsen run'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--workload' '--nemesis' '--bootstrap-server' '--bootstrap' '--planted' '--for' '--clients' '--seed' '--interval' '--threads' '--controllers' '--brokers' '--flush' '--plain' '--secure' '--min-ops' '--min-faults' '--store' '--format'
            set -g __ottla_values '--workload=' '--nemesis=' '--bootstrap-server=' '--bootstrap=' '--planted=' '--for=' '--clients=' '--seed=' '--interval=' '--threads=' '--controllers=' '--brokers=' '--min-ops=' '--min-faults=' '--store=@dir' '--format=table|json'
            set -g __ottla_argument ''
        case 'jepsen run-all'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--workloads' '--nemeses' '--together' '--again' '--for' '--clients' '--seed' '--interval' '--threads' '--controllers' '--brokers' '--flush' '--plain' '--secure' '--min-ops' '--min-faults' '--store' '--format'
            set -g __ottla_values '--workloads=' '--nemeses=' '--together=' '--for=' '--clients=' '--seed=' '--interval=' '--threads=' '--controllers=' '--brokers=' '--min-ops=' '--min-faults=' '--store=@dir' '--format=table|json'
            set -g __ottla_argument ''
        case 'jepsen bugs'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--store' '--format'
            set -g __ottla_values '--store=@dir' '--format=table|json'
            set -g __ottla_argument ''
        case 'jepsen analyze'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--format'
            set -g __ottla_values '--format=table|json'
            set -g __ottla_argument '@dir'
        case 'jepsen serve'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--port'
            set -g __ottla_values '--port='
            set -g __ottla_argument '@dir'
        case 'jepsen list'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--format'
            set -g __ottla_values '--format=table|json'
            set -g __ottla_argument '@dir'
        case 'bench'
            set -g __ottla_verbs 'produce' 'consume' 'e2e' 'clients' 'requests' 'commits' 'rebalance' 'authorizer' 'scrape' 'steady' 'telemetry' 'beside' 'floor' 'scale' 'performance' 'security' 'transactions' 'start' 'failover' 'replication' 'heartbeat' 'broker-move' 'log-move' 'tier-transfer' 'cold' 'compaction' 'instructions' 'append' 'recovery' 'partitions' 'spark' 'spark-partitions' 'spark-round-trip' 'spark-faults'
            set -g __ottla_summaries 'throughput of a producer, and latency from send to acknowledgement' 'throughput of a consumer that reads a topic from its beginning' 'latency of single records from producer to consumer' 'Ottla’s client beside confluent-kafka and aiokafka: throughput and CPU' 'rate and latency of small requests over raw sockets' 'rate and latency of offset commits of one group' 'duration of a group’s first and second rebalance' 'microseconds of one authorization decision over ACLs, in this process' 'duration and size of /metrics, and its delay of other requests' 'a steady load, and an audit of every acknowledged record' 'many clients that push metrics (KIP-714): lost pushes, and their cost' 'Ottla beside Apache Kafka, in alternating rounds: medians, spread and ratio' 'a broker beside the smallest C program that makes the same system calls' 'one machine with 1, 2, 4 and 8 brokers: rates, CPU and memory' 'every row of docs/performance.md, Ottla and Apache Kafka in turns, and that page' 'cost of TLS, handshakes, ACLs and a mix with transactions, with Kafka in turns' 'transactional produce beside idempotent, and duration of commits, with Kafka in turns' 'duration of ’ottla up’ with 3 + 3 nodes, and their memory' 'time without a leader after a broker’s and a controller’s death, and of 1,000 partitions' 'acks=1 and acks=all with one and three replicas' 'delay of heartbeats of an idle and of a busy broker' 'delay of a producer while 2 GB of another topic move to other brokers' 'delay of a producer while 2 GB of its partition move to another log directory' 'uploads, and reads of 500 MB a round from an object store limited to 100 MB/s' 'delay of a producer beside a consumer of a cold backlog' 'delay of a producer and of a tailing consumer beside a compaction' 'instructions of a broker per request (callgrind)' 'one append to a log, of batches of 1, 16 and 1024 KiB' 'check of logs after a kill, with one and two recovery threads' 'one broker of 2,000 and of 10,000 partitions: made, stopped, killed, started' 'throughput of Spark’s reads by Ottla’s source and by others' 'Spark’s reads of 1, 4, 16 and 64 partitions' 'records of all kinds as Spark and another client read them' 'exactly-once delivery through Spark while brokers and drivers die'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'bench produce'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--partitions' '--replication-factor' '--count' '-c' '--record-bytes' '--batch-bytes' '--codec' '--acks' '--linger-ms' '--pid' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--partitions=' '--replication-factor=' '--count=' '-c=' '--record-bytes=' '--batch-bytes=' '--codec=' '--acks=0|1|all' '--linger-ms=' '--pid=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench consume'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--partitions' '--replication-factor' '--count' '-c' '--record-bytes' '--batch-bytes' '--codec' '--pid' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--partitions=' '--replication-factor=' '--count=' '-c=' '--record-bytes=' '--batch-bytes=' '--codec=' '--pid=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench e2e'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--partitions' '--replication-factor' '--count' '-c' '--record-bytes' '--acks' '--pid' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--partitions=' '--replication-factor=' '--count=' '-c=' '--record-bytes=' '--acks=0|1|all' '--pid=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench clients'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--count' '-c' '--rounds' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--count=' '-c=' '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench requests'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--partitions' '--replication-factor' '--count' '-c' '--kind' '--connections' '--in-flight' '--pid' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--partitions=' '--replication-factor=' '--count=' '-c=' '--kind=produce|fetch|metadata' '--connections=' '--in-flight=' '--pid=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench commits'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--partitions' '--replication-factor' '--count' '-c' '--connections' '--members' '--in-flight' '--pid' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--partitions=' '--replication-factor=' '--count=' '-c=' '--connections=' '--in-flight=' '--pid=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench rebalance'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--connections' '--heartbeat-ms' '--rounds' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--connections=' '--heartbeat-ms=' '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench authorizer'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--entries' '--rounds' '--format'
            set -g __ottla_values '--entries=' '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench scrape'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--metrics' '--rounds' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--metrics=' '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench steady'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--partitions' '--replication-factor' '--rate' '--seconds' '--record-bytes' '--batch-bytes' '--codec' '--acks' '--linger-ms' '--set' '--ledger' '--svg' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--partitions=' '--replication-factor=' '--rate=' '--seconds=' '--record-bytes=' '--batch-bytes=' '--codec=' '--acks=0|1|all' '--linger-ms=' '--set=' '--ledger=@file' '--svg=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench telemetry'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--connections' '--seconds' '--produce-rate' '--pid' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--connections=' '--seconds=' '--produce-rate=' '--pid=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench beside'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--kafka' '--rows' '--rounds' '--count' '-c' '--record-bytes' '--batch-bytes' '--codec' '--acks' '--linger-ms' '--partitions' '--singles' '--requests' '--connections' '--in-flight' '--set' '--timeout' '--format'
            set -g __ottla_values '--kafka=@dir' '--rows=' '--rounds=' '--count=' '-c=' '--record-bytes=' '--batch-bytes=' '--codec=' '--acks=0|1|all' '--linger-ms=' '--partitions=' '--singles=' '--requests=' '--connections=' '--in-flight=' '--set=' '--timeout=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench floor'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench scale'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--brokers' '--requests' '--rounds' '--format'
            set -g __ottla_values '--brokers=' '--requests=' '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench performance'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--kafka' '--groups' '--topology' '--form' '--rounds' '--queue-records' '--out' '--page' '--timeout'
            set -g __ottla_values '--kafka=@dir' '--groups=' '--topology=one|three' '--form=' '--rounds=' '--queue-records=' '--out=@dir' '--page=@file' '--timeout='
            set -g __ottla_argument ''
        case 'bench security'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--kafka' '--rounds' '--count' '-c' '--handshake-seconds' '--requests' '--connections' '--in-flight' '--entries' '--timeout' '--format'
            set -g __ottla_values '--kafka=@dir' '--rounds=' '--count=' '-c=' '--handshake-seconds=' '--requests=' '--connections=' '--in-flight=' '--entries=' '--timeout=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench transactions'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--kafka' '--brokers' '--seconds' '--rounds' '--timeout' '--format'
            set -g __ottla_values '--kafka=@dir' '--brokers=' '--seconds=' '--rounds=' '--timeout=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench start'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench failover'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench replication'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench heartbeat'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench broker-move'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench log-move'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench tier-transfer'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench cold'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench compaction'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench instructions'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench append'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench recovery'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench partitions'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench spark'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--replication-factor' '--count' '-c' '--codec' '--jars' '--master' '--rounds' '--format' '--partitions'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--replication-factor=' '--count=' '-c=' '--codec=' '--jars=@dir' '--master=' '--rounds=' '--format=table|json' '--partitions='
            set -g __ottla_argument ''
        case 'bench spark-partitions'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--replication-factor' '--count' '-c' '--codec' '--jars' '--master' '--rounds' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--replication-factor=' '--count=' '-c=' '--codec=' '--jars=@dir' '--master=' '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'bench spark-round-trip'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--count' '-c' '--partitions' '--master'
            set -g __ottla_values '--count=' '-c=' '--partitions=' '--master='
            set -g __ottla_argument ''
        case 'bench spark-faults'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--rounds' '--format'
            set -g __ottla_values '--rounds=' '--format=table|json'
            set -g __ottla_argument ''
        case 'doctor'
            set -g __ottla_verbs 'spark' 'retention' 'certificates' 'listeners'
            set -g __ottla_summaries 'check Java, Python packages, workers, a small query, and brokers if they are named' 'find topics that keep records too long because a timestamp is ahead of the clock' 'check a node’s certificates: expiry, names, issuers' 'check encryption, certificates and logins of addresses from outside'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'doctor spark'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--master' '--timeout' '--no-query' '--verbose' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--master=' '--timeout=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'doctor retention'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'doctor certificates'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--ca' '--format'
            set -g __ottla_values '--ca=@file' '--format=table|json'
            set -g __ottla_argument '@file'
        case 'doctor listeners'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format'
            set -g __ottla_values '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json'
            set -g __ottla_argument ''
        case 'completion'
            set -g __ottla_verbs 'bash' 'zsh' 'fish' 'names'
            set -g __ottla_summaries 'print the completion script for bash' 'print the completion script for zsh' 'print the completion script for fish' 'print names for the scripts, one a line; none if the cluster is not reached'
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'completion bash'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'completion zsh'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'completion fish'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help'
            set -g __ottla_values
            set -g __ottla_argument ''
        case 'completion names'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--line'
            set -g __ottla_values '--line='
            set -g __ottla_argument 'topics|groups|profiles'
        case 'version'
            set -g __ottla_verbs
            set -g __ottla_summaries
            set -g __ottla_options '-h' '--help' '--format'
            set -g __ottla_values '--format=table|json'
            set -g __ottla_argument ''
    end
end

function __ottla_names
    set -l program (commandline -opc)[1]
    $program completion names $argv --line (commandline -p | string collect) 2>/dev/null
end

function __ottla_complete
    set -l current (commandline -ct)
    set -l place ''
    set -l want ''
    set -l before ''
    __ottla_row ''
    for word in (commandline -opc)[2..]
        if test -n "$want"
            set want ''
        else if string match -q -- '-*' $word
            string match -q -- "$word=*" $__ottla_values; and set want $word
        else if contains -- $word $__ottla_verbs
            set place (string trim -- "$place $word")
            set place (string replace -r '^help ' '' -- $place)
            __ottla_row $place
        end
    end
    if test -z "$want"; and string match -q -- '--*=*' $current
        set want (string split -m 1 = -- $current)[1]
        set before "$want="
    end
    set -l kind $__ottla_argument
    if test -n "$want"
        set kind (string match -- "$want=*" $__ottla_values)
        test -n "$kind[1]"; and set kind (string split -m 1 = -- $kind[1])[2]
    else if string match -q -- '-*' $current
        printf '%s\n' $__ottla_options
        return
    else
        for index in (seq (count $__ottla_verbs))
            printf '%s\t%s\n' $__ottla_verbs[$index] $__ottla_summaries[$index]
        end
    end
    switch "$kind"
        case ''
        case @file
            __fish_complete_path (string replace -- "$before" '' $current)
        case @dir
            __fish_complete_directories (string replace -- "$before" '' $current) ''
        case '@*'
            printf "$before%s\n" (__ottla_names (string sub -s 2 -- $kind))
        case '*'
            printf "$before%s\n" (string split '|' -- $kind)
    end
end

complete -c ottla -f -a '(__ottla_complete)'
