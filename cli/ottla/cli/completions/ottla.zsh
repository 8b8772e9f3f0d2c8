#compdef ottla
# Completion of ottla in zsh. Written by `make docs` from the parsers; a test compares it.
# To load it: eval "$(ottla completion zsh)", after compinit; or keep it as _ottla in a folder of $fpath.

_ottla_row() {
  ottla_verbs=() ottla_options=() ottla_values=() ottla_argument=''
  case $1 in
    '')
      ottla_verbs=('up:start a local cluster of real processes' 'down:stop the cluster of a directory' 'status:show whether the cluster is healthy, and why not' 'explain:show why clients are denied, throttled or behind, and partitions not served' 'mcp:give agents the answers of ’explain’, by MCP' 'console:serve web pages of a cluster' 'topic:create, list, describe, change and delete topics' 'user:list, add and delete users that log in by SCRAM' 'token:create, list, renew and end delegation tokens of users' 'acl:list, create, delete and explain ACLs' 'certificates:create and renew certificates of nodes and users' 'group:list, describe, reset and delete groups of consumers' 'share:list, describe, reset and delete share groups' 'txn:list and describe transactions, find and abort hanging ones' 'quota:set limits of users and clients, and show which limit applies' 'produce:write records from standard input' 'consume:print records' 'log:inspect, verify and recover log directories without a broker' 'storage:format directories' 'server:run one node from a .properties file, with the roles in its process.roles' 'controller:run one controller from a .properties file' 'broker:run one broker from a .properties file; or list, drain, cordon and remove brokers' 'cluster:balance brokers, finalize upgrades, change features' 'top:show the busiest brokers, topics, partitions and clients' 'backup:copy topics and offsets of groups into files, and back' 'tier:list, verify and restore the copies of segments in a bucket' 'bundle:write the cluster’s state into one archive for support' 'cleaner:show the state of compaction, start a pass, retry failed logs' 'quorum:show and change the controllers’ quorum' 'config:show, change and compare settings' 'metrics:show and configure metrics that clients push (KIP-714)' 'pipeline:run Spark on topics: archive, telemetry, or a pipeline of your own' 'export:export a topic into Parquet files, an Iceberg or a Delta table' 'table:maintain exported tables' 'sql:query live topics in SQL, by DuckDB' 'world:run the deterministic simulation from seeds' 'jepsen:test real processes under faults' 'bench:measure any Kafka-compatible broker' 'doctor:diagnose this machine for Spark, and a cluster' 'completion:print completion scripts for shells' 'version:print the version' 'help:show the help of a command')
      ottla_options=()
      ottla_values=()
      ottla_argument='' ;;
    'help')
      ottla_verbs=('up:start a local cluster of real processes' 'down:stop the cluster of a directory' 'status:show whether the cluster is healthy, and why not' 'explain:show why clients are denied, throttled or behind, and partitions not served' 'mcp:give agents the answers of ’explain’, by MCP' 'console:serve web pages of a cluster' 'topic:create, list, describe, change and delete topics' 'user:list, add and delete users that log in by SCRAM' 'token:create, list, renew and end delegation tokens of users' 'acl:list, create, delete and explain ACLs' 'certificates:create and renew certificates of nodes and users' 'group:list, describe, reset and delete groups of consumers' 'share:list, describe, reset and delete share groups' 'txn:list and describe transactions, find and abort hanging ones' 'quota:set limits of users and clients, and show which limit applies' 'produce:write records from standard input' 'consume:print records' 'log:inspect, verify and recover log directories without a broker' 'storage:format directories' 'server:run one node from a .properties file, with the roles in its process.roles' 'controller:run one controller from a .properties file' 'broker:run one broker from a .properties file; or list, drain, cordon and remove brokers' 'cluster:balance brokers, finalize upgrades, change features' 'top:show the busiest brokers, topics, partitions and clients' 'backup:copy topics and offsets of groups into files, and back' 'tier:list, verify and restore the copies of segments in a bucket' 'bundle:write the cluster’s state into one archive for support' 'cleaner:show the state of compaction, start a pass, retry failed logs' 'quorum:show and change the controllers’ quorum' 'config:show, change and compare settings' 'metrics:show and configure metrics that clients push (KIP-714)' 'pipeline:run Spark on topics: archive, telemetry, or a pipeline of your own' 'export:export a topic into Parquet files, an Iceberg or a Delta table' 'table:maintain exported tables' 'sql:query live topics in SQL, by DuckDB' 'world:run the deterministic simulation from seeds' 'jepsen:test real processes under faults' 'bench:measure any Kafka-compatible broker' 'doctor:diagnose this machine for Spark, and a cluster' 'completion:print completion scripts for shells' 'version:print the version')
      ottla_options=()
      ottla_values=()
      ottla_argument='' ;;
    'up')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--controllers' '--brokers' '--host' '--port' '--dir' '--ephemeral' '--set' '--tier' '--no-console' '--restart' '--secure' '--detach')
      ottla_values=('--controllers=' '--brokers=' '--host=' '--port=' '--dir=@dir' '--set=' '--tier=')
      ottla_argument='' ;;
    'down')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--dir')
      ottla_values=('--dir=@dir')
      ottla_argument='' ;;
    'status')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format' '--watch' '--under-replicated')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'explain')
      ottla_verbs=('health:show whether the cluster is healthy, and why not' 'denial:show why a user may not do an operation' 'throttle:show which limits slow down clients or replicas now' 'lag:show why a group is behind' 'unavailable:show why partitions cannot be read or written' 'rebalance:show why a group’s assignment is not finished' 'slow:show why requests are slow' 'disk:show why log directories are full or offline' 'transaction:show which open transactions hold up readers' 'delivery:show why a share group’s records are not delivered' 'top:show the busiest clients, topics, partitions and brokers' 'plan:show the steps of a change of the cluster, without carrying it out')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'explain health')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'explain denial')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--topic' '--group' '--transactional-id' '--host' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--group=@groups' '--transactional-id=' '--host=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='read|write|create|delete|alter|describe|cluster-action|describe-configs|alter-configs|idempotent-write|create-tokens|describe-tokens|two-phase-commit' ;;
    'explain throttle')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--user' '--client-id' '--ip' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--user=' '--client-id=' '--ip=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'explain lag')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'explain unavailable')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--topic' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'explain rebalance')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'explain slow')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--topic' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'explain disk')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--broker' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--broker=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'explain transaction')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'explain delivery')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'explain top')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--by' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--by=bytes|requests' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'explain plan')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--broker' '--controller' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--broker=' '--controller=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='balance|remove-broker|drain-broker|add-voter|remove-voter' ;;
    'mcp')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--http' '--token-file' '--keystore' '--host-name')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--http=' '--token-file=@file' '--keystore=@file' '--host-name=')
      ottla_argument='' ;;
    'console')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--listen' '--port' '--tls-certificate' '--tls-key' '--host-name' '--login' '--proxy-header' '--proxy-address' '--role' '--role-file' '--default-role' '--hide-messages' '--registry' '--schema' '--reports')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--listen=' '--port=' '--tls-certificate=@file' '--tls-key=@file' '--host-name=' '--proxy-header=' '--proxy-address=' '--role=' '--role-file=@file' '--default-role=viewer|operator|admin' '--registry=' '--schema=@file' '--reports=@dir')
      ottla_argument='' ;;
    'topic')
      ottla_verbs=('create:create topics' 'list:list topics, with the bytes of all their replicas' 'describe:show a topic’s partitions' 'delete:delete topics' 'alter:change settings of topics' 'add-partitions:add partitions to topics' 'trim:delete the oldest records' 'elect:give leadership to each partition’s first replica' 'reassign:move replicas to other brokers or log directories' 'storage:show the bytes of a topic’s replicas')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'topic create')
      ottla_verbs=()
      ottla_options=('-h' '--help' '-p' '--partitions' '-r' '--replication-factor' '--replicas' '-c' '--config' '--if-not-exists' '--timeout' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('-p=' '--partitions=' '-r=' '--replication-factor=' '--replicas=' '-c=' '--config=' '--timeout=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'topic list')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--internal' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'topic describe')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'topic delete')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'topic alter')
      ottla_verbs=()
      ottla_options=('-h' '--help' '-c' '--config' '--unset' '--dry-run' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('-c=' '--config=' '--unset=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'topic add-partitions')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--by' '--to' '--dry-run' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--by=' '--to=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'topic trim')
      ottla_verbs=()
      ottla_options=('-h' '--help' '-p' '--partition' '--before' '--before-time' '--all' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('-p=' '--partition=' '--before=' '--before-time=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'topic elect')
      ottla_verbs=()
      ottla_options=('-h' '--help' '-p' '--partition' '--unclean' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('-p=' '--partition=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'topic reassign')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--brokers' '--evacuate' '--plan' '--cancel' '--verify' '--log-dir' '-r' '--replicas' '--dry-run' '--yes' '--execute' '--save' '--watch' '--throttle' '--log-dir-throttle' '--replica-alter-log-dirs-throttle' '--adapt' '--no-wait' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--brokers=' '--evacuate=' '--plan=@file' '--log-dir=' '-r=' '--replicas=' '--save=@file' '--throttle=' '--log-dir-throttle=' '--replica-alter-log-dirs-throttle=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'topic storage')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@topics' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'user')
      ottla_verbs=('list:list users and their credentials' 'add:set the password of a user' 'delete:delete the credentials of a user')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'user list')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'user add')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--mechanism' '--iterations' '--password-file' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config')
      ottla_values=('--mechanism=SCRAM-SHA-256|SCRAM-SHA-512' '--iterations=' '--password-file=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file')
      ottla_argument='' ;;
    'user delete')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--mechanism' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config')
      ottla_values=('--mechanism=SCRAM-SHA-256|SCRAM-SHA-512' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file')
      ottla_argument='' ;;
    'token')
      ottla_verbs=('create:create a token for the current user' 'list:list tokens, without their secrets' 'renew:extend the lifetime of a token' 'end:end a token at once, and its sessions')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'token create')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--renewer' '--for' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--renewer=' '--for=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'token list')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--owner' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--owner=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'token renew')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--for' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config')
      ottla_values=('--for=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file')
      ottla_argument='' ;;
    'token end')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file')
      ottla_argument='' ;;
    'acl')
      ottla_verbs=('list:list ACLs' 'create:create ACLs that allow or deny operations' 'delete:delete ACLs' 'explain:show which ACL decides whether a user may do an operation')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'acl list')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--topic' '--group' '--transactional-id' '--delegation-token' '--user' '--cluster' '--prefixed' '--matching' '--principal' '--host' '--operation' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--group=@groups' '--transactional-id=' '--delegation-token=' '--user=' '--principal=' '--host=' '--operation=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'acl create')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--allow' '--deny' '--topic' '--group' '--transactional-id' '--delegation-token' '--user' '--cluster' '--prefixed' '--operation' '--producer' '--consumer' '--host' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--allow=' '--deny=' '--topic=@topics' '--group=@groups' '--transactional-id=' '--delegation-token=' '--user=' '--operation=' '--host=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'acl delete')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--topic' '--group' '--transactional-id' '--delegation-token' '--user' '--cluster' '--prefixed' '--matching' '--principal' '--host' '--operation' '--all' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--group=@groups' '--transactional-id=' '--delegation-token=' '--user=' '--principal=' '--host=' '--operation=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'acl explain')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--topic' '--group' '--transactional-id' '--delegation-token' '--user' '--cluster' '--prefixed' '--host' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--group=@groups' '--transactional-id=' '--delegation-token=' '--user=' '--host=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'certificates')
      ottla_verbs=('ca:create a certificate authority, of nodes or of users' 'node:issue the certificate of a node, which only that node can use' 'user:issue the certificate of a user' 'renew:renew certificates that end soon, with new keys and the same names')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'certificates ca')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--users' '--name' '--format')
      ottla_values=('--name=' '--format=table|json')
      ottla_argument='@dir' ;;
    'certificates node')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--host' '--name' '--output' '--valid-for' '--ca' '--format')
      ottla_values=('--host=' '--name=' '--output=@file' '--valid-for=' '--ca=@dir' '--format=table|json')
      ottla_argument='' ;;
    'certificates user')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--output' '--valid-for' '--ca' '--format')
      ottla_values=('--output=@file' '--valid-for=' '--ca=@dir' '--format=table|json')
      ottla_argument='' ;;
    'certificates renew')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--within' '--all' '--valid-for' '--ca' '--format')
      ottla_values=('--within=' '--valid-for=' '--ca=@dir' '--format=table|json')
      ottla_argument='@file' ;;
    'group')
      ottla_verbs=('list:list groups' 'describe:show state, members, and lag by topic' 'members:show a group’s members and their partitions' 'lag:show how far a group, or each of all groups, is behind, in records and in time' 'remove-member:remove members, so that a rebalance no longer waits for them' 'reset:show and move a group’s committed offsets' 'offset-delete:show and delete committed offsets of topics or partitions' 'delete:delete groups without members, with their offsets')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'group list')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--type' '--state' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--type=' '--state=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'group describe')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--isolation-level' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--isolation-level=read_uncommitted|read_committed' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'group members')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'group lag')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--watch' '--partitions' '--isolation-level' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--isolation-level=read_uncommitted|read_committed' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'group remove-member')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--instance-id' '--all' '--reason' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--instance-id=' '--reason=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'group reset')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--topic' '--to-earliest' '--to-latest' '--to-offset' '--to-datetime' '--by-duration' '--shift-by' '--to-current' '--from-file' '--export' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--to-offset=' '--to-datetime=' '--by-duration=' '--shift-by=' '--from-file=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'group offset-delete')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--topic' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'group delete')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'share')
      ottla_verbs=('list:list share groups' 'describe:show state, members, start offsets and lags' 'peek:show the records in flight, with members and locks' 'redrive:move dead letters back to the partitions of their records' 'offsets:show the start offset and the lag of each partition' 'reset:show and move the start offsets of a group' 'offset-delete:delete the offsets of topics' 'delete:delete share groups without members, with their offsets')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'share list')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--state' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--state=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'share describe')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'share peek')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--topic' '--offset' '--limit' '--waiting' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--offset=' '--limit=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'share redrive')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--dead-letter-topic' '--topic' '--cause' '--since' '--until' '--limit' '--redrives-max' '--progress-topic' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--dead-letter-topic=@topics' '--topic=@topics' '--cause=rejected|exhausted' '--since=' '--until=' '--limit=' '--redrives-max=' '--progress-topic=@topics' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'share offsets')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'share reset')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--topic' '--to-earliest' '--to-latest' '--to-offset' '--to-datetime' '--by-duration' '--shift-by' '--to-current' '--from-file' '--export' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--to-offset=' '--to-datetime=' '--by-duration=' '--shift-by=' '--from-file=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'share offset-delete')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--topic' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'share delete')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@groups' ;;
    'txn')
      ottla_verbs=('list:list transactional ids and their states' 'describe:show transactions by their transactional ids' 'producers:show the producers of partitions, and their open transactions' 'find-hanging:find transactions without a coordinator that would end them' 'abort:abort a hanging transaction in one partition')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'txn list')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--state' '--producer-id' '--longer-than' '--match' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--state=' '--producer-id=' '--longer-than=' '--match=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'txn describe')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'txn producers')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'txn find-hanging')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--longer-than' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--longer-than=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'txn abort')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--start-offset' '--force' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--start-offset=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'quota')
      ottla_verbs=('list:list every limit' 'set:set limits of a user, a client id, both, or an address' 'delete:remove limits' 'explain:show which limit applies to a client, and why' 'usage:show the rates of limited clients, and which are throttled' 'export:print all limits as JSON, for ’apply’' 'apply:set the limits of a file')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'quota list')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'quota set')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--user' '--client-id' '--ip' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--user=' '--client-id=' '--ip=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'quota delete')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--user' '--client-id' '--ip' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--user=' '--client-id=' '--ip=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'quota explain')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--user' '--client-id' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--user=' '--client-id=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'quota usage')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--limit' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--limit=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'quota export')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file')
      ottla_argument='' ;;
    'quota apply')
      ottla_verbs=()
      ottla_options=('-h' '--help' '-f' '--file' '--prune' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('-f=@file' '--file=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'produce')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '-p' '--partition' '-K' '--key-delimiter' '-k' '--key' '-H' '--header' '-Z' '--null' '-z' '--codec' '--acks' '--create' '--transactional-id')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '-p=' '--partition=' '-K=' '--key-delimiter=' '-k=' '--key=' '-H=' '--header=' '-z=none|gzip|snappy|lz4|zstd' '--codec=none|gzip|snappy|lz4|zstd' '--acks=1|all' '--transactional-id=')
      ottla_argument='@topics' ;;
    'consume')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--regex' '-G' '--group' '--share' '-p' '--partition' '-o' '--offset' '-c' '--count' '-e' '--exit-at-end' '-K' '--key-delimiter' '-f' '--format-string' '--isolation-level' '-J' '--json')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '-G=@groups' '--group=@groups' '--share=@groups' '-p=' '--partition=' '-o=' '--offset=' '-c=' '--count=' '-K=' '--key-delimiter=' '-f=' '--format-string=' '--isolation-level=read_uncommitted|read_committed')
      ottla_argument='@topics' ;;
    'log')
      ottla_verbs=('dump:show log, index, snapshot and checkpoint files' 'index:show indexes, and entries that do not match their log' 'snapshot:show the state of a log’s producers' 'checkpoint:show checkpoints and identities' 'verify:check every file of a log directory or a partition' 'recover:show how a start after a crash recovers a log directory, and recover it')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'log dump')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--format' '--records' '--metadata' '--value-bytes')
      ottla_values=('--format=table|json' '--value-bytes=')
      ottla_argument='@file' ;;
    'log index')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--format')
      ottla_values=('--format=table|json')
      ottla_argument='@file' ;;
    'log snapshot')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--format')
      ottla_values=('--format=table|json')
      ottla_argument='@file' ;;
    'log checkpoint')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--format')
      ottla_values=('--format=table|json')
      ottla_argument='@file' ;;
    'log verify')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--records' '--format')
      ottla_values=('--format=table|json')
      ottla_argument='@dir' ;;
    'log recover')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--all' '--dry-run' '--yes' '--execute' '--format')
      ottla_values=('--format=table|json')
      ottla_argument='@dir' ;;
    'storage')
      ottla_verbs=('format:format the directories of one node' 'random-uuid:print an id for a new cluster or directory' 'accept-loss:have a controller vote again that lost metadata')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'storage format')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--config' '-c' '--cluster-id' '-t' '--initial-controllers' '-I' '--standalone' '-s' '--no-initial-controllers' '-N' '--ignore-formatted' '-g' '--release-version' '-r' '--feature' '-f' '--add-scram' '-S')
      ottla_values=('--config=@file' '-c=@file' '--cluster-id=' '-t=' '--initial-controllers=' '-I=' '--release-version=' '-r=' '--feature=' '-f=' '--add-scram=' '-S=')
      ottla_argument='' ;;
    'storage random-uuid')
      ottla_verbs=()
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'storage accept-loss')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--config' '-c' '--dry-run' '--yes' '--execute')
      ottla_values=('--config=@file' '-c=@file')
      ottla_argument='' ;;
    'server')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--set' '--brokers-per-host')
      ottla_values=('--set=' '--brokers-per-host=')
      ottla_argument='@file' ;;
    'controller')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--set')
      ottla_values=('--set=')
      ottla_argument='@file' ;;
    'broker')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--set')
      ottla_values=('--set=')
      ottla_argument='@file' ;;
    'broker list')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'broker describe')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'broker drain')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--undo' '--force' '--yes' '--host' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--host=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'broker cordon')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--undo' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'broker logdirs')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--replicas' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'broker unregister')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--force' '--yes' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'broker remove')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--dry-run' '--yes' '--execute' '--throttle' '--timeout' '--stop-timeout' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--throttle=' '--timeout=' '--stop-timeout=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'cluster')
      ottla_verbs=('balance:make bytes, replicas and leaders of the brokers even' 'features:show, raise and lower the levels of features' 'upgrade:show and end an upgrade')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'cluster balance')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--dry-run' '--yes' '--execute' '--status' '--cancel' '--save' '--throttle' '--moves-max' '--no-wait' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--save=@file' '--throttle=' '--moves-max=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'cluster features')
      ottla_verbs=('describe:show the finalized and the supported levels' 'upgrade:raise levels of features' 'downgrade:lower levels of features')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'cluster features describe')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'cluster features upgrade')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'cluster features downgrade')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--unsafe' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'cluster upgrade')
      ottla_verbs=('status:show the nodes’ releases, the finalized levels and the next ones' 'finalize:raise the levels to those of the new release, after which no node may return')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'cluster upgrade status')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'cluster upgrade finalize')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--feature' '--dry-run' '--yes' '--execute' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--feature=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'top')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format' '--once' '--interval' '--rows')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json' '--interval=' '--rows=')
      ottla_argument='' ;;
    'backup')
      ottla_verbs=('create:copy topics and the offsets of groups into files, while the cluster serves' 'verify:check all files of a backup' 'restore:write a backup into a cluster that has none of its topics')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'backup create')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--topic' '--timeout' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--timeout=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@dir' ;;
    'backup verify')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--format')
      ottla_values=('--format=table|json')
      ottla_argument='@dir' ;;
    'backup restore')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--replication-factor' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--replication-factor=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@dir' ;;
    'tier')
      ottla_verbs=('status:show how far the topics of a running cluster are copied' 'offload:delete the brokers’ local copies of segments that the object store has, now' 'topics:list the topics in the bucket' 'verify:check that the segments in the bucket are complete' 'explain:show which segment has which records of a partition' 'fetch:download segments of a partition as files, for ’ottla log dump’' 'restore:make a new cluster on this machine with the topics in the bucket' 'cost:show what the segments in the bucket cost')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'tier status')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'tier offload')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--broker' '--dry-run' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--broker=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'tier topics')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--uri' '--config' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--uri=' '--config=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'tier verify')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--topic' '--full' '--uri' '--config' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--uri=' '--config=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'tier explain')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--uri' '--config' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--uri=' '--config=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'tier fetch')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--into' '--start-offset' '--end-offset' '--uri' '--config' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--into=@dir' '--start-offset=' '--end-offset=' '--uri=' '--config=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'tier restore')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--into' '--node' '--broker-ids' '--topic' '--allow-missing' '--in-place' '--old-cluster-is-gone' '--without-group-offsets' '--controllers' '--brokers' '--replication-factor' '--host' '--port' '--dry-run' '--yes' '--execute' '--uri' '--config' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--into=@dir' '--node=@file' '--broker-ids=' '--topic=@topics' '--controllers=' '--brokers=' '--replication-factor=' '--host=' '--port=' '--uri=' '--config=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'tier cost')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--storage-price' '--put-price' '--get-price' '--uri' '--config' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--storage-price=' '--put-price=' '--get-price=' '--uri=' '--config=@file' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'bundle')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format' '-o' '--output')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json' '-o=@file' '--output=@file')
      ottla_argument='' ;;
    'cleaner')
      ottla_verbs=('status:show dirty ratios, last passes, and the reasons why logs are not compacted' 'run:compact logs now, whatever their dirty ratio; their active segments are closed' 'retry:retry logs whose compaction failed')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'cleaner status')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--failed' '--broker' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--broker=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'cleaner run')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--no-wait' '--timeout' '--broker' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--timeout=' '--broker=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'cleaner retry')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--broker' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--broker=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'quorum')
      ottla_verbs=('status:show leader, epoch, high watermark, voters and observers' 'add:add a controller, which runs and has caught up, to the voters' 'remove:remove a controller from the voters' 'replicas:list voters and observers with lag and directory' 'replace:replace a voter whose directory is lost, or by another controller' 'unregister:delete the registration of a controller that is gone' 'log:print changes of the metadata in words' 'snapshot:have the active controller write a snapshot of the metadata now')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'quorum status')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-controller' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-controller=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'quorum add')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--dry-run' '--yes' '--execute' '--timeout' '--bootstrap-controller' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--timeout=' '--bootstrap-controller=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'quorum remove')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--directory' '--unregister' '--dry-run' '--yes' '--execute' '--timeout' '--bootstrap-controller' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--directory=' '--timeout=' '--bootstrap-controller=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'quorum replicas')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-controller' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-controller=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'quorum replace')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--by' '--address' '--unregister' '--dry-run' '--yes' '--execute' '--timeout' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--by=' '--address=' '--timeout=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'quorum unregister')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--dry-run' '--yes' '--execute' '--bootstrap-controller' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-controller=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'quorum log')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--follow' '-f' '--from' '--max' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--from=' '--max=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'quorum snapshot')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--dry-run' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'config')
      ottla_verbs=('get:show settings and their sources' 'set:change settings; running brokers apply them at once' 'diff:show differences from the defaults, or between two of a kind')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'config get')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--all' '--topic' '--broker' '--cluster' '--group' '--client-metrics' '--loggers' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--broker=' '--group=@groups' '--client-metrics=' '--loggers=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'config set')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--unset' '--dry-run' '--yes' '--topic' '--broker' '--cluster' '--group' '--client-metrics' '--loggers' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--unset=' '--topic=@topics' '--broker=' '--group=@groups' '--client-metrics=' '--loggers=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'config diff')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--topic' '--broker' '--cluster' '--group' '--client-metrics' '--loggers' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--topic=@topics' '--broker=' '--group=@groups' '--client-metrics=' '--loggers=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'metrics')
      ottla_verbs=('subscriptions:list, set and delete subscriptions to metrics of clients' 'clients:show clients that push metrics, which ones, and how often' 'tail:print metrics as clients push them')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'metrics subscriptions')
      ottla_verbs=('list:list subscriptions' 'set:create a subscription, or change the given parts of an existing one' 'delete:delete a subscription')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'metrics subscriptions list')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'metrics subscriptions set')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--metrics' '--interval' '--match' '--dry-run' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--metrics=' '--interval=' '--match=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'metrics subscriptions delete')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--dry-run' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'metrics clients')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--client' '--broker' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--client=' '--broker=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'metrics tail')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--client' '--broker' '--metric' '--recent' '-c' '--count' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--client=' '--broker=' '--metric=' '-c=' '--count=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'pipeline')
      ottla_verbs=('archive:write topics to Parquet by topic, date and hour, or one topic to a table' 'compact:merge small files of an archive' 'telemetry:aggregate metrics of clients over windows of time' 'run:run a pipeline of your own, from a Python file' 'lag:show the lag of streaming queries' 'zip:pack Ottla’s modules for spark-submit --py-files')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'pipeline archive')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--pattern' '-o' '--output' '--table-format' '--catalog-option' '--name' '--schema' '--transform' '--starting' '--option' '--headers' '--checkpoint' '--from' '--to' '--late' '--once' '--trigger' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format' '--master' '--conf' '--jars' '--packages' '--py-files' '--archives' '--spark-log')
      ottla_values=('--pattern=' '-o=' '--output=' '--table-format=parquet|iceberg|delta' '--catalog-option=' '--name=' '--schema=' '--transform=' '--starting=' '--option=' '--checkpoint=@dir' '--from=' '--to=' '--late=' '--trigger=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json' '--master=' '--conf=' '--jars=' '--packages=' '--py-files=' '--archives=' '--spark-log=@file')
      ottla_argument='@topics' ;;
    'pipeline compact')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--target-mib' '--keep' '--format')
      ottla_values=('--target-mib=' '--keep=' '--format=table|json')
      ottla_argument='@dir' ;;
    'pipeline telemetry')
      ottla_verbs=()
      ottla_options=('-h' '--help' '-o' '--output' '--output-topic' '--topic' '--window' '--lateness' '--by' '--metrics' '--name' '--starting' '--option' '--checkpoint' '--once' '--trigger' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format' '--master' '--conf' '--jars' '--packages' '--py-files' '--archives' '--spark-log')
      ottla_values=('-o=@dir' '--output=@dir' '--output-topic=@topics' '--topic=@topics' '--window=' '--lateness=' '--by=' '--metrics=' '--name=' '--starting=' '--option=' '--checkpoint=@dir' '--trigger=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json' '--master=' '--conf=' '--jars=' '--packages=' '--py-files=' '--archives=' '--spark-log=@file')
      ottla_argument='' ;;
    'pipeline run')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--once' '--trigger' '--format' '--master' '--conf' '--jars' '--packages' '--py-files' '--archives' '--spark-log')
      ottla_values=('--trigger=' '--format=table|json' '--master=' '--conf=' '--jars=' '--packages=' '--py-files=' '--archives=' '--spark-log=@file')
      ottla_argument='@file' ;;
    'pipeline lag')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--watch' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--isolation-level' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--isolation-level=read_uncommitted|read_committed' '--format=table|json')
      ottla_argument='' ;;
    'pipeline zip')
      ottla_verbs=()
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='@file' ;;
    'export')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--to' '--follow' '--json' '--schema' '--isolation-level' '--file-size' '--commit-interval' '--compression' '--catalog-option' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--to=' '--schema=' '--isolation-level=read_committed|read_uncommitted' '--file-size=' '--commit-interval=' '--compression=zstd|snappy|lz4|gzip|none' '--catalog-option=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='@topics' ;;
    'table')
      ottla_verbs=('maintain:merge small files of an exported table, expire snapshots, remove unused files')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'table maintain')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--file-size' '--keep' '--dry-run' '--catalog-option' '--format')
      ottla_values=('--file-size=' '--keep=' '--catalog-option=' '--format=table|json')
      ottla_argument='' ;;
    'sql')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--json' '--schema' '--isolation-level' '--memory' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--schema=' '--isolation-level=read_committed|read_uncommitted' '--memory=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json|csv')
      ottla_argument='' ;;
    'world')
      ottla_verbs=('run:run seeds and judge every step' 'soak:search with every engine in turn' 'soak-programs:search with property tests of programs that use Kafka' 'replay:run a stored failure again and print its events; or the test of a program that failed' 'bugs:plant each known bug and measure the time until it is found' 'fuzz:fuzz every parser of foreign bytes' 'list:list engines and their subjects')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'world run')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--engine' '--subject' '--seed' '--seeds' '--for' '--budget' '--mutant' '--keep' '--no-shrink' '--demand-rare' '--processes' '--format')
      ottla_values=('--engine=walk|whole' '--subject=' '--seed=' '--seeds=' '--for=' '--budget=' '--mutant=' '--keep=' '--processes=' '--format=table|json')
      ottla_argument='' ;;
    'world soak')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--for' '--seed' '--out' '--processes' '--format')
      ottla_values=('--for=' '--seed=' '--out=@dir' '--processes=' '--format=table|markdown|json')
      ottla_argument='' ;;
    'world soak-programs')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--for' '--seed' '--corpus' '--processes' '--format')
      ottla_values=('--for=' '--seed=' '--corpus=@dir' '--processes=' '--format=table|json')
      ottla_argument='' ;;
    'world replay')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--all' '--format')
      ottla_values=('--format=table|json')
      ottla_argument='@file' ;;
    'world bugs')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--for' '--processes' '--format')
      ottla_values=('--for=' '--processes=' '--format=table|json')
      ottla_argument='' ;;
    'world fuzz')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--target' '--list' '--for' '--seed' '--driver' '--keep' '--format')
      ottla_values=('--target=' '--for=' '--seed=' '--driver=atheris|plain' '--keep=@dir' '--format=table|json')
      ottla_argument='' ;;
    'world list')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--format')
      ottla_values=('--format=table|json')
      ottla_argument='' ;;
    'jepsen')
      ottla_verbs=('run:run one test: load, faults, verdict' 'run-all:run every workload under every nemesis, without those that have a verdict' 'bugs:plant bugs, and check that each is found' 'analyze:judge stored runs again' 'serve:serve stored reports to browsers of this machine' 'list:list workloads, nemeses and runs')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'jepsen run')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--workload' '--nemesis' '--bootstrap-server' '--bootstrap' '--planted' '--for' '--clients' '--seed' '--interval' '--threads' '--controllers' '--brokers' '--flush' '--plain' '--secure' '--min-ops' '--min-faults' '--store' '--format')
      ottla_values=('--workload=' '--nemesis=' '--bootstrap-server=' '--bootstrap=' '--planted=' '--for=' '--clients=' '--seed=' '--interval=' '--threads=' '--controllers=' '--brokers=' '--min-ops=' '--min-faults=' '--store=@dir' '--format=table|json')
      ottla_argument='' ;;
    'jepsen run-all')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--workloads' '--nemeses' '--together' '--again' '--for' '--clients' '--seed' '--interval' '--threads' '--controllers' '--brokers' '--flush' '--plain' '--secure' '--min-ops' '--min-faults' '--store' '--format')
      ottla_values=('--workloads=' '--nemeses=' '--together=' '--for=' '--clients=' '--seed=' '--interval=' '--threads=' '--controllers=' '--brokers=' '--min-ops=' '--min-faults=' '--store=@dir' '--format=table|json')
      ottla_argument='' ;;
    'jepsen bugs')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--store' '--format')
      ottla_values=('--store=@dir' '--format=table|json')
      ottla_argument='' ;;
    'jepsen analyze')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--format')
      ottla_values=('--format=table|json')
      ottla_argument='@dir' ;;
    'jepsen serve')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--port')
      ottla_values=('--port=')
      ottla_argument='@dir' ;;
    'jepsen list')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--format')
      ottla_values=('--format=table|json')
      ottla_argument='@dir' ;;
    'bench')
      ottla_verbs=('produce:throughput of a producer, and latency from send to acknowledgement' 'consume:throughput of a consumer that reads a topic from its beginning' 'e2e:latency of single records from producer to consumer' 'clients:Ottla’s client beside confluent-kafka and aiokafka: throughput and CPU' 'requests:rate and latency of small requests over raw sockets' 'commits:rate and latency of offset commits of one group' 'rebalance:duration of a group’s first and second rebalance' 'authorizer:microseconds of one authorization decision over ACLs, in this process' 'scrape:duration and size of /metrics, and its delay of other requests' 'steady:a steady load, and an audit of every acknowledged record' 'telemetry:many clients that push metrics (KIP-714): lost pushes, and their cost' 'beside:Ottla beside Apache Kafka, in alternating rounds: medians, spread and ratio' 'floor:a broker beside the smallest C program that makes the same system calls' 'scale:one machine with 1, 2, 4 and 8 brokers: rates, CPU and memory' 'performance:every row of docs/performance.md, Ottla and Apache Kafka in turns, and that page' 'security:cost of TLS, handshakes, ACLs and a mix with transactions, with Kafka in turns' 'transactions:transactional produce beside idempotent, and duration of commits, with Kafka in turns' 'start:duration of ’ottla up’ with 3 + 3 nodes, and their memory' 'failover:time without a leader after a broker’s and a controller’s death, and of 1,000 partitions' 'replication:acks=1 and acks=all with one and three replicas' 'heartbeat:delay of heartbeats of an idle and of a busy broker' 'broker-move:delay of a producer while 2 GB of another topic move to other brokers' 'log-move:delay of a producer while 2 GB of its partition move to another log directory' 'tier-transfer:uploads, and reads of 500 MB a round from an object store limited to 100 MB/s' 'cold:delay of a producer beside a consumer of a cold backlog' 'compaction:delay of a producer and of a tailing consumer beside a compaction' 'instructions:instructions of a broker per request (callgrind)' 'append:one append to a log, of batches of 1, 16 and 1024 KiB' 'recovery:check of logs after a kill, with one and two recovery threads' 'partitions:one broker of 2,000 and of 10,000 partitions: made, stopped, killed, started' 'spark:throughput of Spark’s reads by Ottla’s source and by others' 'spark-partitions:Spark’s reads of 1, 4, 16 and 64 partitions' 'spark-round-trip:records of all kinds as Spark and another client read them' 'spark-faults:exactly-once delivery through Spark while brokers and drivers die')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'bench produce')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--partitions' '--replication-factor' '--count' '-c' '--record-bytes' '--batch-bytes' '--codec' '--acks' '--linger-ms' '--pid' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--partitions=' '--replication-factor=' '--count=' '-c=' '--record-bytes=' '--batch-bytes=' '--codec=' '--acks=0|1|all' '--linger-ms=' '--pid=' '--format=table|json')
      ottla_argument='' ;;
    'bench consume')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--partitions' '--replication-factor' '--count' '-c' '--record-bytes' '--batch-bytes' '--codec' '--pid' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--partitions=' '--replication-factor=' '--count=' '-c=' '--record-bytes=' '--batch-bytes=' '--codec=' '--pid=' '--format=table|json')
      ottla_argument='' ;;
    'bench e2e')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--partitions' '--replication-factor' '--count' '-c' '--record-bytes' '--acks' '--pid' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--partitions=' '--replication-factor=' '--count=' '-c=' '--record-bytes=' '--acks=0|1|all' '--pid=' '--format=table|json')
      ottla_argument='' ;;
    'bench clients')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--count' '-c' '--rounds' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--count=' '-c=' '--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench requests')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--partitions' '--replication-factor' '--count' '-c' '--kind' '--connections' '--in-flight' '--pid' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--partitions=' '--replication-factor=' '--count=' '-c=' '--kind=produce|fetch|metadata' '--connections=' '--in-flight=' '--pid=' '--format=table|json')
      ottla_argument='' ;;
    'bench commits')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--partitions' '--replication-factor' '--count' '-c' '--connections' '--members' '--in-flight' '--pid' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--partitions=' '--replication-factor=' '--count=' '-c=' '--connections=' '--in-flight=' '--pid=' '--format=table|json')
      ottla_argument='' ;;
    'bench rebalance')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--connections' '--heartbeat-ms' '--rounds' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--connections=' '--heartbeat-ms=' '--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench authorizer')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--entries' '--rounds' '--format')
      ottla_values=('--entries=' '--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench scrape')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--metrics' '--rounds' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--metrics=' '--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench steady')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--partitions' '--replication-factor' '--rate' '--seconds' '--record-bytes' '--batch-bytes' '--codec' '--acks' '--linger-ms' '--set' '--ledger' '--svg' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--partitions=' '--replication-factor=' '--rate=' '--seconds=' '--record-bytes=' '--batch-bytes=' '--codec=' '--acks=0|1|all' '--linger-ms=' '--set=' '--ledger=@file' '--svg=@file' '--format=table|json')
      ottla_argument='' ;;
    'bench telemetry')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--connections' '--seconds' '--produce-rate' '--pid' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--connections=' '--seconds=' '--produce-rate=' '--pid=' '--format=table|json')
      ottla_argument='' ;;
    'bench beside')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--kafka' '--rows' '--rounds' '--count' '-c' '--record-bytes' '--batch-bytes' '--codec' '--acks' '--linger-ms' '--partitions' '--singles' '--requests' '--connections' '--in-flight' '--set' '--timeout' '--format')
      ottla_values=('--kafka=@dir' '--rows=' '--rounds=' '--count=' '-c=' '--record-bytes=' '--batch-bytes=' '--codec=' '--acks=0|1|all' '--linger-ms=' '--partitions=' '--singles=' '--requests=' '--connections=' '--in-flight=' '--set=' '--timeout=' '--format=table|json')
      ottla_argument='' ;;
    'bench floor')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench scale')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--brokers' '--requests' '--rounds' '--format')
      ottla_values=('--brokers=' '--requests=' '--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench performance')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--kafka' '--groups' '--topology' '--form' '--rounds' '--queue-records' '--out' '--page' '--timeout')
      ottla_values=('--kafka=@dir' '--groups=' '--topology=one|three' '--form=' '--rounds=' '--queue-records=' '--out=@dir' '--page=@file' '--timeout=')
      ottla_argument='' ;;
    'bench security')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--kafka' '--rounds' '--count' '-c' '--handshake-seconds' '--requests' '--connections' '--in-flight' '--entries' '--timeout' '--format')
      ottla_values=('--kafka=@dir' '--rounds=' '--count=' '-c=' '--handshake-seconds=' '--requests=' '--connections=' '--in-flight=' '--entries=' '--timeout=' '--format=table|json')
      ottla_argument='' ;;
    'bench transactions')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--kafka' '--brokers' '--seconds' '--rounds' '--timeout' '--format')
      ottla_values=('--kafka=@dir' '--brokers=' '--seconds=' '--rounds=' '--timeout=' '--format=table|json')
      ottla_argument='' ;;
    'bench start')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench failover')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench replication')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench heartbeat')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench broker-move')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench log-move')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench tier-transfer')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench cold')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench compaction')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench instructions')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench append')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench recovery')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench partitions')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench spark')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--replication-factor' '--count' '-c' '--codec' '--jars' '--master' '--rounds' '--format' '--partitions')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--replication-factor=' '--count=' '-c=' '--codec=' '--jars=@dir' '--master=' '--rounds=' '--format=table|json' '--partitions=')
      ottla_argument='' ;;
    'bench spark-partitions')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--topic' '--keep' '--replication-factor' '--count' '-c' '--codec' '--jars' '--master' '--rounds' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--topic=@topics' '--replication-factor=' '--count=' '-c=' '--codec=' '--jars=@dir' '--master=' '--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'bench spark-round-trip')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--count' '-c' '--partitions' '--master')
      ottla_values=('--count=' '-c=' '--partitions=' '--master=')
      ottla_argument='' ;;
    'bench spark-faults')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--rounds' '--format')
      ottla_values=('--rounds=' '--format=table|json')
      ottla_argument='' ;;
    'doctor')
      ottla_verbs=('spark:check Java, Python packages, workers, a small query, and brokers if they are named' 'retention:find topics that keep records too long because a timestamp is ahead of the clock' 'certificates:check a node’s certificates: expiry, names, issuers' 'listeners:check encryption, certificates and logins of addresses from outside')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'doctor spark')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--master' '--timeout' '--no-query' '--verbose' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--master=' '--timeout=' '--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'doctor retention')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'doctor certificates')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--ca' '--format')
      ottla_values=('--ca=@file' '--format=table|json')
      ottla_argument='@file' ;;
    'doctor listeners')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--bootstrap-server' '--bootstrap' '--dir' '--profile' '--command-config' '--format')
      ottla_values=('--bootstrap-server=' '--bootstrap=' '--dir=@dir' '--profile=@profiles' '--command-config=@file' '--format=table|json')
      ottla_argument='' ;;
    'completion')
      ottla_verbs=('bash:print the completion script for bash' 'zsh:print the completion script for zsh' 'fish:print the completion script for fish' 'names:print names for the scripts, one a line; none if the cluster is not reached')
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'completion bash')
      ottla_verbs=()
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'completion zsh')
      ottla_verbs=()
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'completion fish')
      ottla_verbs=()
      ottla_options=('-h' '--help')
      ottla_values=()
      ottla_argument='' ;;
    'completion names')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--line')
      ottla_values=('--line=')
      ottla_argument='topics|groups|profiles' ;;
    'version')
      ottla_verbs=()
      ottla_options=('-h' '--help' '--format')
      ottla_values=('--format=table|json')
      ottla_argument='' ;;
  esac
}

_ottla() {
  local -a ottla_verbs ottla_options ottla_values ottla_found
  local ottla_argument ottla_place='' ottla_want='' ottla_kind='' ottla_word ottla_index
  local ottla_current=${words[CURRENT]}
  _ottla_row ''
  for ((ottla_index = 2; ottla_index < CURRENT; ottla_index++)); do
    ottla_word=${words[ottla_index]}
    if [[ -n $ottla_want ]]; then
      ottla_want=''
    elif [[ $ottla_word == -* ]]; then
      [[ -n ${(M)ottla_values:#${ottla_word}=*} ]] && ottla_want=$ottla_word
    elif [[ -n ${(M)ottla_verbs:#${ottla_word}:*} ]]; then
      ottla_place="${ottla_place:+$ottla_place }$ottla_word"
      ottla_place=${ottla_place#help }
      _ottla_row "$ottla_place"
    fi
  done
  if [[ -z $ottla_want && $ottla_current == --*=* ]]; then
    ottla_want=${ottla_current%%=*}
    compset -P '*='
  fi
  if [[ -n $ottla_want ]]; then
    ottla_found=(${(M)ottla_values:#${ottla_want}=*})
    ottla_kind=${ottla_found[1]#*=}
  elif [[ $ottla_current == -* ]]; then
    compadd -- $ottla_options
    return
  else
    (( $#ottla_verbs )) && _describe command ottla_verbs
    ottla_kind=$ottla_argument
  fi
  case $ottla_kind in
    @file) _files ;;
    @dir) _files -/ ;;
    @*)
      ottla_found=(${(f)"$(${words[1]} completion names ${ottla_kind#@} --line "$BUFFER" 2>/dev/null)"})
      compadd -- $ottla_found ;;
    ?*)
      ottla_found=(${(s:|:)ottla_kind})
      compadd -- $ottla_found ;;
  esac
}

if [[ $funcstack[1] == _ottla ]]; then
  _ottla
else
  compdef _ottla ottla
fi
