# Completion of ottla in bash. Written by `make docs` from the parsers; a test compares it.
# To load it: eval "$(ottla completion bash)"

_ottla_row() {
  verbs='' options='' values='' argument=''
  case $1 in
    '')
      verbs='up down status explain mcp console topic user token acl certificates group share txn quota produce consume log storage server controller broker cluster top backup tier bundle cleaner quorum config metrics pipeline export table sql world jepsen bench doctor completion version help'
      options=''
      values=''
      argument='' ;;
    'help')
      verbs='up down status explain mcp console topic user token acl certificates group share txn quota produce consume log storage server controller broker cluster top backup tier bundle cleaner quorum config metrics pipeline export table sql world jepsen bench doctor completion version'
      options=''
      values=''
      argument='' ;;
    'up')
      verbs=''
      options='-h --help --controllers --brokers --host --port --dir --ephemeral --set --tier --no-console --restart --secure --detach'
      values='--controllers= --brokers= --host= --port= --dir=@dir --set= --tier='
      argument='' ;;
    'down')
      verbs=''
      options='-h --help --dir'
      values='--dir=@dir'
      argument='' ;;
    'status')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format --watch --under-replicated'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'explain')
      verbs='health denial throttle lag unavailable rebalance slow disk transaction delivery top plan'
      options='-h --help'
      values=''
      argument='' ;;
    'explain health')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'explain denial')
      verbs=''
      options='-h --help --topic --group --transactional-id --host --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --group=@groups --transactional-id= --host= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='read|write|create|delete|alter|describe|cluster-action|describe-configs|alter-configs|idempotent-write|create-tokens|describe-tokens|two-phase-commit' ;;
    'explain throttle')
      verbs=''
      options='-h --help --user --client-id --ip --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--user= --client-id= --ip= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'explain lag')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'explain unavailable')
      verbs=''
      options='-h --help --topic --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'explain rebalance')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'explain slow')
      verbs=''
      options='-h --help --topic --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'explain disk')
      verbs=''
      options='-h --help --broker --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--broker= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'explain transaction')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@topics' ;;
    'explain delivery')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'explain top')
      verbs=''
      options='-h --help --by --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--by=bytes|requests --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'explain plan')
      verbs=''
      options='-h --help --broker --controller --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--broker= --controller= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='balance|remove-broker|drain-broker|add-voter|remove-voter' ;;
    'mcp')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --http --token-file --keystore --host-name'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --http= --token-file=@file --keystore=@file --host-name='
      argument='' ;;
    'console')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --listen --port --tls-certificate --tls-key --host-name --login --proxy-header --proxy-address --role --role-file --default-role --hide-messages --registry --schema --reports'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --listen= --port= --tls-certificate=@file --tls-key=@file --host-name= --proxy-header= --proxy-address= --role= --role-file=@file --default-role=viewer|operator|admin --registry= --schema=@file --reports=@dir'
      argument='' ;;
    'topic')
      verbs='create list describe delete alter add-partitions trim elect reassign storage'
      options='-h --help'
      values=''
      argument='' ;;
    'topic create')
      verbs=''
      options='-h --help -p --partitions -r --replication-factor --replicas -c --config --if-not-exists --timeout --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='-p= --partitions= -r= --replication-factor= --replicas= -c= --config= --timeout= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'topic list')
      verbs=''
      options='-h --help --internal --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@topics --command-config=@file --format=table|json'
      argument='' ;;
    'topic describe')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@topics --command-config=@file --format=table|json'
      argument='@topics' ;;
    'topic delete')
      verbs=''
      options='-h --help --yes --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@topics --command-config=@file --format=table|json'
      argument='@topics' ;;
    'topic alter')
      verbs=''
      options='-h --help -c --config --unset --dry-run --yes --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='-c= --config= --unset= --bootstrap-server= --bootstrap= --dir=@dir --profile=@topics --command-config=@file --format=table|json'
      argument='@topics' ;;
    'topic add-partitions')
      verbs=''
      options='-h --help --by --to --dry-run --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--by= --to= --bootstrap-server= --bootstrap= --dir=@dir --profile=@topics --command-config=@file --format=table|json'
      argument='@topics' ;;
    'topic trim')
      verbs=''
      options='-h --help -p --partition --before --before-time --all --dry-run --yes --execute --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='-p= --partition= --before= --before-time= --bootstrap-server= --bootstrap= --dir=@dir --profile=@topics --command-config=@file --format=table|json'
      argument='@topics' ;;
    'topic elect')
      verbs=''
      options='-h --help -p --partition --unclean --dry-run --yes --execute --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='-p= --partition= --bootstrap-server= --bootstrap= --dir=@dir --profile=@topics --command-config=@file --format=table|json'
      argument='@topics' ;;
    'topic reassign')
      verbs=''
      options='-h --help --brokers --evacuate --plan --cancel --verify --log-dir -r --replicas --dry-run --yes --execute --save --watch --throttle --log-dir-throttle --replica-alter-log-dirs-throttle --adapt --no-wait --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--brokers= --evacuate= --plan=@file --log-dir= -r= --replicas= --save=@file --throttle= --log-dir-throttle= --replica-alter-log-dirs-throttle= --bootstrap-server= --bootstrap= --dir=@dir --profile=@topics --command-config=@file --format=table|json'
      argument='@topics' ;;
    'topic storage')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@topics --command-config=@file --format=table|json'
      argument='@topics' ;;
    'user')
      verbs='list add delete'
      options='-h --help'
      values=''
      argument='' ;;
    'user list')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'user add')
      verbs=''
      options='-h --help --mechanism --iterations --password-file --bootstrap-server --bootstrap --dir --profile --command-config'
      values='--mechanism=SCRAM-SHA-256|SCRAM-SHA-512 --iterations= --password-file=@file --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file'
      argument='' ;;
    'user delete')
      verbs=''
      options='-h --help --mechanism --yes --bootstrap-server --bootstrap --dir --profile --command-config'
      values='--mechanism=SCRAM-SHA-256|SCRAM-SHA-512 --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file'
      argument='' ;;
    'token')
      verbs='create list renew end'
      options='-h --help'
      values=''
      argument='' ;;
    'token create')
      verbs=''
      options='-h --help --renewer --for --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--renewer= --for= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'token list')
      verbs=''
      options='-h --help --owner --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--owner= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'token renew')
      verbs=''
      options='-h --help --for --bootstrap-server --bootstrap --dir --profile --command-config'
      values='--for= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file'
      argument='' ;;
    'token end')
      verbs=''
      options='-h --help --yes --bootstrap-server --bootstrap --dir --profile --command-config'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file'
      argument='' ;;
    'acl')
      verbs='list create delete explain'
      options='-h --help'
      values=''
      argument='' ;;
    'acl list')
      verbs=''
      options='-h --help --topic --group --transactional-id --delegation-token --user --cluster --prefixed --matching --principal --host --operation --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --group=@groups --transactional-id= --delegation-token= --user= --principal= --host= --operation= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'acl create')
      verbs=''
      options='-h --help --allow --deny --topic --group --transactional-id --delegation-token --user --cluster --prefixed --operation --producer --consumer --host --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--allow= --deny= --topic=@topics --group=@groups --transactional-id= --delegation-token= --user= --operation= --host= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'acl delete')
      verbs=''
      options='-h --help --topic --group --transactional-id --delegation-token --user --cluster --prefixed --matching --principal --host --operation --all --dry-run --yes --execute --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --group=@groups --transactional-id= --delegation-token= --user= --principal= --host= --operation= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'acl explain')
      verbs=''
      options='-h --help --topic --group --transactional-id --delegation-token --user --cluster --prefixed --host --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --group=@groups --transactional-id= --delegation-token= --user= --host= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'certificates')
      verbs='ca node user renew'
      options='-h --help'
      values=''
      argument='' ;;
    'certificates ca')
      verbs=''
      options='-h --help --users --name --format'
      values='--name= --format=table|json'
      argument='@dir' ;;
    'certificates node')
      verbs=''
      options='-h --help --host --name --output --valid-for --ca --format'
      values='--host= --name= --output=@file --valid-for= --ca=@dir --format=table|json'
      argument='' ;;
    'certificates user')
      verbs=''
      options='-h --help --output --valid-for --ca --format'
      values='--output=@file --valid-for= --ca=@dir --format=table|json'
      argument='' ;;
    'certificates renew')
      verbs=''
      options='-h --help --within --all --valid-for --ca --format'
      values='--within= --valid-for= --ca=@dir --format=table|json'
      argument='@file' ;;
    'group')
      verbs='list describe members lag remove-member reset offset-delete delete'
      options='-h --help'
      values=''
      argument='' ;;
    'group list')
      verbs=''
      options='-h --help --type --state --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--type= --state= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'group describe')
      verbs=''
      options='-h --help --isolation-level --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--isolation-level=read_uncommitted|read_committed --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'group members')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'group lag')
      verbs=''
      options='-h --help --watch --partitions --isolation-level --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--isolation-level=read_uncommitted|read_committed --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'group remove-member')
      verbs=''
      options='-h --help --instance-id --all --reason --dry-run --yes --execute --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--instance-id= --reason= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'group reset')
      verbs=''
      options='-h --help --topic --to-earliest --to-latest --to-offset --to-datetime --by-duration --shift-by --to-current --from-file --export --dry-run --yes --execute --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --to-offset= --to-datetime= --by-duration= --shift-by= --from-file=@file --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'group offset-delete')
      verbs=''
      options='-h --help --topic --dry-run --yes --execute --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'group delete')
      verbs=''
      options='-h --help --yes --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'share')
      verbs='list describe peek redrive offsets reset offset-delete delete'
      options='-h --help'
      values=''
      argument='' ;;
    'share list')
      verbs=''
      options='-h --help --state --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--state= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'share describe')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'share peek')
      verbs=''
      options='-h --help --topic --offset --limit --waiting --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --offset= --limit= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'share redrive')
      verbs=''
      options='-h --help --dead-letter-topic --topic --cause --since --until --limit --redrives-max --progress-topic --dry-run --yes --execute --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--dead-letter-topic=@topics --topic=@topics --cause=rejected|exhausted --since= --until= --limit= --redrives-max= --progress-topic=@topics --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'share offsets')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'share reset')
      verbs=''
      options='-h --help --topic --to-earliest --to-latest --to-offset --to-datetime --by-duration --shift-by --to-current --from-file --export --dry-run --yes --execute --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --to-offset= --to-datetime= --by-duration= --shift-by= --from-file=@file --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'share offset-delete')
      verbs=''
      options='-h --help --topic --dry-run --yes --execute --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'share delete')
      verbs=''
      options='-h --help --yes --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@groups' ;;
    'txn')
      verbs='list describe producers find-hanging abort'
      options='-h --help'
      values=''
      argument='' ;;
    'txn list')
      verbs=''
      options='-h --help --state --producer-id --longer-than --match --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--state= --producer-id= --longer-than= --match= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'txn describe')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'txn producers')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@topics' ;;
    'txn find-hanging')
      verbs=''
      options='-h --help --longer-than --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--longer-than= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@topics' ;;
    'txn abort')
      verbs=''
      options='-h --help --start-offset --force --yes --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--start-offset= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@topics' ;;
    'quota')
      verbs='list set delete explain usage export apply'
      options='-h --help'
      values=''
      argument='' ;;
    'quota list')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'quota set')
      verbs=''
      options='-h --help --user --client-id --ip --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--user= --client-id= --ip= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'quota delete')
      verbs=''
      options='-h --help --user --client-id --ip --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--user= --client-id= --ip= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'quota explain')
      verbs=''
      options='-h --help --user --client-id --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--user= --client-id= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'quota usage')
      verbs=''
      options='-h --help --limit --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--limit= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'quota export')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file'
      argument='' ;;
    'quota apply')
      verbs=''
      options='-h --help -f --file --prune --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='-f=@file --file=@file --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'produce')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config -p --partition -K --key-delimiter -k --key -H --header -Z --null -z --codec --acks --create --transactional-id'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file -p= --partition= -K= --key-delimiter= -k= --key= -H= --header= -z=none|gzip|snappy|lz4|zstd --codec=none|gzip|snappy|lz4|zstd --acks=1|all --transactional-id='
      argument='@topics' ;;
    'consume')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --regex -G --group --share -p --partition -o --offset -c --count -e --exit-at-end -K --key-delimiter -f --format-string --isolation-level -J --json'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file -G=@groups --group=@groups --share=@groups -p= --partition= -o= --offset= -c= --count= -K= --key-delimiter= -f= --format-string= --isolation-level=read_uncommitted|read_committed'
      argument='@topics' ;;
    'log')
      verbs='dump index snapshot checkpoint verify recover'
      options='-h --help'
      values=''
      argument='' ;;
    'log dump')
      verbs=''
      options='-h --help --format --records --metadata --value-bytes'
      values='--format=table|json --value-bytes='
      argument='@file' ;;
    'log index')
      verbs=''
      options='-h --help --format'
      values='--format=table|json'
      argument='@file' ;;
    'log snapshot')
      verbs=''
      options='-h --help --format'
      values='--format=table|json'
      argument='@file' ;;
    'log checkpoint')
      verbs=''
      options='-h --help --format'
      values='--format=table|json'
      argument='@file' ;;
    'log verify')
      verbs=''
      options='-h --help --records --format'
      values='--format=table|json'
      argument='@dir' ;;
    'log recover')
      verbs=''
      options='-h --help --all --dry-run --yes --execute --format'
      values='--format=table|json'
      argument='@dir' ;;
    'storage')
      verbs='format random-uuid accept-loss'
      options='-h --help'
      values=''
      argument='' ;;
    'storage format')
      verbs=''
      options='-h --help --config -c --cluster-id -t --initial-controllers -I --standalone -s --no-initial-controllers -N --ignore-formatted -g --release-version -r --feature -f --add-scram -S'
      values='--config=@file -c=@file --cluster-id= -t= --initial-controllers= -I= --release-version= -r= --feature= -f= --add-scram= -S='
      argument='' ;;
    'storage random-uuid')
      verbs=''
      options='-h --help'
      values=''
      argument='' ;;
    'storage accept-loss')
      verbs=''
      options='-h --help --config -c --dry-run --yes --execute'
      values='--config=@file -c=@file'
      argument='' ;;
    'server')
      verbs=''
      options='-h --help --set --brokers-per-host'
      values='--set= --brokers-per-host='
      argument='@file' ;;
    'controller')
      verbs=''
      options='-h --help --set'
      values='--set='
      argument='@file' ;;
    'broker')
      verbs=''
      options='-h --help --set'
      values='--set='
      argument='@file' ;;
    'broker list')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'broker describe')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'broker drain')
      verbs=''
      options='-h --help --undo --force --yes --host --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--host= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'broker cordon')
      verbs=''
      options='-h --help --undo --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'broker logdirs')
      verbs=''
      options='-h --help --replicas --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'broker unregister')
      verbs=''
      options='-h --help --force --yes --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'broker remove')
      verbs=''
      options='-h --help --dry-run --yes --execute --throttle --timeout --stop-timeout --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--throttle= --timeout= --stop-timeout= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'cluster')
      verbs='balance features upgrade'
      options='-h --help'
      values=''
      argument='' ;;
    'cluster balance')
      verbs=''
      options='-h --help --dry-run --yes --execute --status --cancel --save --throttle --moves-max --no-wait --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--save=@file --throttle= --moves-max= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'cluster features')
      verbs='describe upgrade downgrade'
      options='-h --help'
      values=''
      argument='' ;;
    'cluster features describe')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'cluster features upgrade')
      verbs=''
      options='-h --help --dry-run --yes --execute --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'cluster features downgrade')
      verbs=''
      options='-h --help --unsafe --dry-run --yes --execute --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'cluster upgrade')
      verbs='status finalize'
      options='-h --help'
      values=''
      argument='' ;;
    'cluster upgrade status')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'cluster upgrade finalize')
      verbs=''
      options='-h --help --feature --dry-run --yes --execute --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--feature= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'top')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format --once --interval --rows'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json --interval= --rows='
      argument='' ;;
    'backup')
      verbs='create verify restore'
      options='-h --help'
      values=''
      argument='' ;;
    'backup create')
      verbs=''
      options='-h --help --topic --timeout --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --timeout= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@dir' ;;
    'backup verify')
      verbs=''
      options='-h --help --format'
      values='--format=table|json'
      argument='@dir' ;;
    'backup restore')
      verbs=''
      options='-h --help --replication-factor --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--replication-factor= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@dir' ;;
    'tier')
      verbs='status offload topics verify explain fetch restore cost'
      options='-h --help'
      values=''
      argument='' ;;
    'tier status')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@topics' ;;
    'tier offload')
      verbs=''
      options='-h --help --broker --dry-run --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--broker= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@topics' ;;
    'tier topics')
      verbs=''
      options='-h --help --uri --config --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--uri= --config=@file --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'tier verify')
      verbs=''
      options='-h --help --topic --full --uri --config --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --uri= --config=@file --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'tier explain')
      verbs=''
      options='-h --help --uri --config --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--uri= --config=@file --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'tier fetch')
      verbs=''
      options='-h --help --into --start-offset --end-offset --uri --config --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--into=@dir --start-offset= --end-offset= --uri= --config=@file --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'tier restore')
      verbs=''
      options='-h --help --into --node --broker-ids --topic --allow-missing --in-place --old-cluster-is-gone --without-group-offsets --controllers --brokers --replication-factor --host --port --dry-run --yes --execute --uri --config --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--into=@dir --node=@file --broker-ids= --topic=@topics --controllers= --brokers= --replication-factor= --host= --port= --uri= --config=@file --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'tier cost')
      verbs=''
      options='-h --help --storage-price --put-price --get-price --uri --config --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--storage-price= --put-price= --get-price= --uri= --config=@file --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'bundle')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format -o --output'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json -o=@file --output=@file'
      argument='' ;;
    'cleaner')
      verbs='status run retry'
      options='-h --help'
      values=''
      argument='' ;;
    'cleaner status')
      verbs=''
      options='-h --help --failed --broker --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--broker= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@topics' ;;
    'cleaner run')
      verbs=''
      options='-h --help --no-wait --timeout --broker --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--timeout= --broker= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@topics' ;;
    'cleaner retry')
      verbs=''
      options='-h --help --broker --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--broker= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@topics' ;;
    'quorum')
      verbs='status add remove replicas replace unregister log snapshot'
      options='-h --help'
      values=''
      argument='' ;;
    'quorum status')
      verbs=''
      options='-h --help --bootstrap-controller --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-controller= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'quorum add')
      verbs=''
      options='-h --help --dry-run --yes --execute --timeout --bootstrap-controller --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--timeout= --bootstrap-controller= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'quorum remove')
      verbs=''
      options='-h --help --directory --unregister --dry-run --yes --execute --timeout --bootstrap-controller --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--directory= --timeout= --bootstrap-controller= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'quorum replicas')
      verbs=''
      options='-h --help --bootstrap-controller --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-controller= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'quorum replace')
      verbs=''
      options='-h --help --by --address --unregister --dry-run --yes --execute --timeout --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--by= --address= --timeout= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'quorum unregister')
      verbs=''
      options='-h --help --dry-run --yes --execute --bootstrap-controller --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-controller= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'quorum log')
      verbs=''
      options='-h --help --follow -f --from --max --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--from= --max= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'quorum snapshot')
      verbs=''
      options='-h --help --dry-run --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'config')
      verbs='get set diff'
      options='-h --help'
      values=''
      argument='' ;;
    'config get')
      verbs=''
      options='-h --help --all --topic --broker --cluster --group --client-metrics --loggers --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --broker= --group=@groups --client-metrics= --loggers= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'config set')
      verbs=''
      options='-h --help --unset --dry-run --yes --topic --broker --cluster --group --client-metrics --loggers --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--unset= --topic=@topics --broker= --group=@groups --client-metrics= --loggers= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'config diff')
      verbs=''
      options='-h --help --topic --broker --cluster --group --client-metrics --loggers --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--topic=@topics --broker= --group=@groups --client-metrics= --loggers= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'metrics')
      verbs='subscriptions clients tail'
      options='-h --help'
      values=''
      argument='' ;;
    'metrics subscriptions')
      verbs='list set delete'
      options='-h --help'
      values=''
      argument='' ;;
    'metrics subscriptions list')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'metrics subscriptions set')
      verbs=''
      options='-h --help --metrics --interval --match --dry-run --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--metrics= --interval= --match= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'metrics subscriptions delete')
      verbs=''
      options='-h --help --dry-run --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'metrics clients')
      verbs=''
      options='-h --help --client --broker --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--client= --broker= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'metrics tail')
      verbs=''
      options='-h --help --client --broker --metric --recent -c --count --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--client= --broker= --metric= -c= --count= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'pipeline')
      verbs='archive compact telemetry run lag zip'
      options='-h --help'
      values=''
      argument='' ;;
    'pipeline archive')
      verbs=''
      options='-h --help --pattern -o --output --table-format --catalog-option --name --schema --transform --starting --option --headers --checkpoint --from --to --late --once --trigger --bootstrap-server --bootstrap --dir --profile --command-config --format --master --conf --jars --packages --py-files --archives --spark-log'
      values='--pattern= -o= --output= --table-format=parquet|iceberg|delta --catalog-option= --name= --schema= --transform= --starting= --option= --checkpoint=@dir --from= --to= --late= --trigger= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json --master= --conf= --jars= --packages= --py-files= --archives= --spark-log=@file'
      argument='@topics' ;;
    'pipeline compact')
      verbs=''
      options='-h --help --target-mib --keep --format'
      values='--target-mib= --keep= --format=table|json'
      argument='@dir' ;;
    'pipeline telemetry')
      verbs=''
      options='-h --help -o --output --output-topic --topic --window --lateness --by --metrics --name --starting --option --checkpoint --once --trigger --bootstrap-server --bootstrap --dir --profile --command-config --format --master --conf --jars --packages --py-files --archives --spark-log'
      values='-o=@dir --output=@dir --output-topic=@topics --topic=@topics --window= --lateness= --by= --metrics= --name= --starting= --option= --checkpoint=@dir --trigger= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json --master= --conf= --jars= --packages= --py-files= --archives= --spark-log=@file'
      argument='' ;;
    'pipeline run')
      verbs=''
      options='-h --help --once --trigger --format --master --conf --jars --packages --py-files --archives --spark-log'
      values='--trigger= --format=table|json --master= --conf= --jars= --packages= --py-files= --archives= --spark-log=@file'
      argument='@file' ;;
    'pipeline lag')
      verbs=''
      options='-h --help --watch --bootstrap-server --bootstrap --dir --profile --command-config --isolation-level --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --isolation-level=read_uncommitted|read_committed --format=table|json'
      argument='' ;;
    'pipeline zip')
      verbs=''
      options='-h --help'
      values=''
      argument='@file' ;;
    'export')
      verbs=''
      options='-h --help --to --follow --json --schema --isolation-level --file-size --commit-interval --compression --catalog-option --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--to= --schema= --isolation-level=read_committed|read_uncommitted --file-size= --commit-interval= --compression=zstd|snappy|lz4|gzip|none --catalog-option= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='@topics' ;;
    'table')
      verbs='maintain'
      options='-h --help'
      values=''
      argument='' ;;
    'table maintain')
      verbs=''
      options='-h --help --file-size --keep --dry-run --catalog-option --format'
      values='--file-size= --keep= --catalog-option= --format=table|json'
      argument='' ;;
    'sql')
      verbs=''
      options='-h --help --json --schema --isolation-level --memory --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--schema= --isolation-level=read_committed|read_uncommitted --memory= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json|csv'
      argument='' ;;
    'world')
      verbs='run soak soak-programs replay bugs fuzz list'
      options='-h --help'
      values=''
      argument='' ;;
    'world run')
      verbs=''
      options='-h --help --engine --subject --seed --seeds --for --budget --mutant --keep --no-shrink --demand-rare --processes --format'
      values='--engine=walk|whole --subject= --seed= --seeds= --for= --budget= --mutant= --keep= --processes= --format=table|json'
      argument='' ;;
    'world soak')
      verbs=''
      options='-h --help --for --seed --out --processes --format'
      values='--for= --seed= --out=@dir --processes= --format=table|markdown|json'
      argument='' ;;
    'world soak-programs')
      verbs=''
      options='-h --help --for --seed --corpus --processes --format'
      values='--for= --seed= --corpus=@dir --processes= --format=table|json'
      argument='' ;;
    'world replay')
      verbs=''
      options='-h --help --all --format'
      values='--format=table|json'
      argument='@file' ;;
    'world bugs')
      verbs=''
      options='-h --help --for --processes --format'
      values='--for= --processes= --format=table|json'
      argument='' ;;
    'world fuzz')
      verbs=''
      options='-h --help --target --list --for --seed --driver --keep --format'
      values='--target= --for= --seed= --driver=atheris|plain --keep=@dir --format=table|json'
      argument='' ;;
    'world list')
      verbs=''
      options='-h --help --format'
      values='--format=table|json'
      argument='' ;;
    'jepsen')
      verbs='run run-all bugs analyze serve list'
      options='-h --help'
      values=''
      argument='' ;;
    'jepsen run')
      verbs=''
      options='-h --help --workload --nemesis --bootstrap-server --bootstrap --planted --for --clients --seed --interval --threads --controllers --brokers --flush --plain --secure --min-ops --min-faults --store --format'
      values='--workload= --nemesis= --bootstrap-server= --bootstrap= --planted= --for= --clients= --seed= --interval= --threads= --controllers= --brokers= --min-ops= --min-faults= --store=@dir --format=table|json'
      argument='' ;;
    'jepsen run-all')
      verbs=''
      options='-h --help --workloads --nemeses --together --again --for --clients --seed --interval --threads --controllers --brokers --flush --plain --secure --min-ops --min-faults --store --format'
      values='--workloads= --nemeses= --together= --for= --clients= --seed= --interval= --threads= --controllers= --brokers= --min-ops= --min-faults= --store=@dir --format=table|json'
      argument='' ;;
    'jepsen bugs')
      verbs=''
      options='-h --help --store --format'
      values='--store=@dir --format=table|json'
      argument='' ;;
    'jepsen analyze')
      verbs=''
      options='-h --help --format'
      values='--format=table|json'
      argument='@dir' ;;
    'jepsen serve')
      verbs=''
      options='-h --help --port'
      values='--port='
      argument='@dir' ;;
    'jepsen list')
      verbs=''
      options='-h --help --format'
      values='--format=table|json'
      argument='@dir' ;;
    'bench')
      verbs='produce consume e2e clients requests commits rebalance authorizer scrape steady telemetry beside floor scale performance security transactions start failover replication heartbeat broker-move log-move tier-transfer cold compaction instructions append recovery partitions spark spark-partitions spark-round-trip spark-faults'
      options='-h --help'
      values=''
      argument='' ;;
    'bench produce')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --topic --keep --partitions --replication-factor --count -c --record-bytes --batch-bytes --codec --acks --linger-ms --pid --format'
      values='--bootstrap-server= --bootstrap= --topic=@topics --partitions= --replication-factor= --count= -c= --record-bytes= --batch-bytes= --codec= --acks=0|1|all --linger-ms= --pid= --format=table|json'
      argument='' ;;
    'bench consume')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --topic --keep --partitions --replication-factor --count -c --record-bytes --batch-bytes --codec --pid --format'
      values='--bootstrap-server= --bootstrap= --topic=@topics --partitions= --replication-factor= --count= -c= --record-bytes= --batch-bytes= --codec= --pid= --format=table|json'
      argument='' ;;
    'bench e2e')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --topic --keep --partitions --replication-factor --count -c --record-bytes --acks --pid --format'
      values='--bootstrap-server= --bootstrap= --topic=@topics --partitions= --replication-factor= --count= -c= --record-bytes= --acks=0|1|all --pid= --format=table|json'
      argument='' ;;
    'bench clients')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --topic --keep --count -c --rounds --format'
      values='--bootstrap-server= --bootstrap= --topic=@topics --count= -c= --rounds= --format=table|json'
      argument='' ;;
    'bench requests')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --topic --keep --partitions --replication-factor --count -c --kind --connections --in-flight --pid --format'
      values='--bootstrap-server= --bootstrap= --topic=@topics --partitions= --replication-factor= --count= -c= --kind=produce|fetch|metadata --connections= --in-flight= --pid= --format=table|json'
      argument='' ;;
    'bench commits')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --topic --keep --partitions --replication-factor --count -c --connections --members --in-flight --pid --format'
      values='--bootstrap-server= --bootstrap= --topic=@topics --partitions= --replication-factor= --count= -c= --connections= --in-flight= --pid= --format=table|json'
      argument='' ;;
    'bench rebalance')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --connections --heartbeat-ms --rounds --format'
      values='--bootstrap-server= --bootstrap= --connections= --heartbeat-ms= --rounds= --format=table|json'
      argument='' ;;
    'bench authorizer')
      verbs=''
      options='-h --help --entries --rounds --format'
      values='--entries= --rounds= --format=table|json'
      argument='' ;;
    'bench scrape')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --metrics --rounds --format'
      values='--bootstrap-server= --bootstrap= --metrics= --rounds= --format=table|json'
      argument='' ;;
    'bench steady')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --topic --keep --partitions --replication-factor --rate --seconds --record-bytes --batch-bytes --codec --acks --linger-ms --set --ledger --svg --format'
      values='--bootstrap-server= --bootstrap= --topic=@topics --partitions= --replication-factor= --rate= --seconds= --record-bytes= --batch-bytes= --codec= --acks=0|1|all --linger-ms= --set= --ledger=@file --svg=@file --format=table|json'
      argument='' ;;
    'bench telemetry')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --topic --keep --connections --seconds --produce-rate --pid --format'
      values='--bootstrap-server= --bootstrap= --topic=@topics --connections= --seconds= --produce-rate= --pid= --format=table|json'
      argument='' ;;
    'bench beside')
      verbs=''
      options='-h --help --kafka --rows --rounds --count -c --record-bytes --batch-bytes --codec --acks --linger-ms --partitions --singles --requests --connections --in-flight --set --timeout --format'
      values='--kafka=@dir --rows= --rounds= --count= -c= --record-bytes= --batch-bytes= --codec= --acks=0|1|all --linger-ms= --partitions= --singles= --requests= --connections= --in-flight= --set= --timeout= --format=table|json'
      argument='' ;;
    'bench floor')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'bench scale')
      verbs=''
      options='-h --help --brokers --requests --rounds --format'
      values='--brokers= --requests= --rounds= --format=table|json'
      argument='' ;;
    'bench performance')
      verbs=''
      options='-h --help --kafka --groups --topology --form --rounds --queue-records --out --page --timeout'
      values='--kafka=@dir --groups= --topology=one|three --form= --rounds= --queue-records= --out=@dir --page=@file --timeout='
      argument='' ;;
    'bench security')
      verbs=''
      options='-h --help --kafka --rounds --count -c --handshake-seconds --requests --connections --in-flight --entries --timeout --format'
      values='--kafka=@dir --rounds= --count= -c= --handshake-seconds= --requests= --connections= --in-flight= --entries= --timeout= --format=table|json'
      argument='' ;;
    'bench transactions')
      verbs=''
      options='-h --help --kafka --brokers --seconds --rounds --timeout --format'
      values='--kafka=@dir --brokers= --seconds= --rounds= --timeout= --format=table|json'
      argument='' ;;
    'bench start')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'bench failover')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'bench replication')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'bench heartbeat')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'bench broker-move')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'bench log-move')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'bench tier-transfer')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'bench cold')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'bench compaction')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'bench instructions')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'bench append')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'bench recovery')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'bench partitions')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'bench spark')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --topic --keep --replication-factor --count -c --codec --jars --master --rounds --format --partitions'
      values='--bootstrap-server= --bootstrap= --topic=@topics --replication-factor= --count= -c= --codec= --jars=@dir --master= --rounds= --format=table|json --partitions='
      argument='' ;;
    'bench spark-partitions')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --topic --keep --replication-factor --count -c --codec --jars --master --rounds --format'
      values='--bootstrap-server= --bootstrap= --topic=@topics --replication-factor= --count= -c= --codec= --jars=@dir --master= --rounds= --format=table|json'
      argument='' ;;
    'bench spark-round-trip')
      verbs=''
      options='-h --help --count -c --partitions --master'
      values='--count= -c= --partitions= --master='
      argument='' ;;
    'bench spark-faults')
      verbs=''
      options='-h --help --rounds --format'
      values='--rounds= --format=table|json'
      argument='' ;;
    'doctor')
      verbs='spark retention certificates listeners'
      options='-h --help'
      values=''
      argument='' ;;
    'doctor spark')
      verbs=''
      options='-h --help --master --timeout --no-query --verbose --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--master= --timeout= --bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'doctor retention')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'doctor certificates')
      verbs=''
      options='-h --help --ca --format'
      values='--ca=@file --format=table|json'
      argument='@file' ;;
    'doctor listeners')
      verbs=''
      options='-h --help --bootstrap-server --bootstrap --dir --profile --command-config --format'
      values='--bootstrap-server= --bootstrap= --dir=@dir --profile=@profiles --command-config=@file --format=table|json'
      argument='' ;;
    'completion')
      verbs='bash zsh fish names'
      options='-h --help'
      values=''
      argument='' ;;
    'completion bash')
      verbs=''
      options='-h --help'
      values=''
      argument='' ;;
    'completion zsh')
      verbs=''
      options='-h --help'
      values=''
      argument='' ;;
    'completion fish')
      verbs=''
      options='-h --help'
      values=''
      argument='' ;;
    'completion names')
      verbs=''
      options='-h --help --line'
      values='--line='
      argument='topics|groups|profiles' ;;
    'version')
      verbs=''
      options='-h --help --format'
      values='--format=table|json'
      argument='' ;;
  esac
}

_ottla() {
  local verbs options values argument place='' want='' word kind index
  local current=${COMP_WORDS[COMP_CWORD]}
  _ottla_row ''
  for ((index = 1; index < COMP_CWORD; index++)); do
    word=${COMP_WORDS[index]}
    if [[ $word == '=' ]]; then
      continue
    elif [[ -n $want ]]; then
      want=''
    elif [[ $word == -* ]]; then
      [[ " $values " == *" $word="* ]] && want=$word
    elif [[ " $verbs " == *" $word "* ]]; then
      place="${place:+$place }$word"
      [[ $place == 'help '* ]] && place=${place#help }
      _ottla_row "$place"
    fi
  done
  [[ $current == '=' ]] && current=''
  COMPREPLY=()
  if [[ -n $want ]]; then
    kind=" $values "
    kind=${kind#*" $want="}
    kind=${kind%% *}
  elif [[ $current == -* ]]; then
    compopt +o default
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
    return
  else
    mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$current")
    kind=$argument
    [[ -n $verbs && $kind != @file ]] && { compopt +o default; return; }
  fi
  case $kind in
    @file) [[ ${#COMPREPLY[@]} -gt 0 ]] && COMPREPLY+=($(compgen -f -- "$current")) ;;
    @dir)
      compopt -o filenames
      mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    @*)
      compopt +o default
      kind=$("${COMP_WORDS[0]}" completion names "${kind#@}" --line "$COMP_LINE" 2>/dev/null)
      mapfile -t COMPREPLY < <(compgen -W "$kind" -- "$current") ;;
    *)
      compopt +o default
      mapfile -t COMPREPLY < <(compgen -W "${kind//|/ }" -- "$current") ;;
  esac
}

complete -o bashdefault -o default -F _ottla ottla
