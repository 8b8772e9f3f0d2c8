"""Commands that start, stop, survey and change a cluster and its nodes.

A local cluster
up.py                     `ottla up`: start here
down.py                   `ottla down`
cluster_file.py           the plan of a local cluster, and its file cluster.json
console_process.py        the process of the console of a local cluster
cluster_format.py         formats the controllers of a new local cluster
forked_nodes.py           forks the nodes from the process of `ottla up`
local_cluster.py          the processes of the cluster
local_tier.py             tiered storage of a local cluster
served_cluster.py         the cluster from the time it is ready until it ends

One node
server/                   `ottla server FILE`: a node with the roles in its settings file
controller.py             `ottla controller`
broker.py                 `ottla broker FILE`
storage.py                `ottla storage`: format directories
formatting/               directories and initial content of a node
add_scram.py              SCRAM credentials of a new cluster
node_process.py           process of a controller or broker
file_modes.py             warnings of files that other users of the machine can access
doctor.py                 `ottla doctor`: checks of Spark, retention, listeners, certificates

A running cluster
explain.py                `ottla explain`: questions about the state of the cluster
mcp.py                    `ottla mcp`: the answers of `ottla explain` for AI agents
console.py                `ottla console`: web pages
status.py                 `ottla status`
quorum.py                 `ottla quorum status`
voters/                   `ottla quorum add | remove | replace | unregister | replicas | log`
brokers.py                `ottla broker list | describe | drain`
log_dirs.py               `ottla broker logdirs`
removal/                  `ottla broker unregister | remove`
moves/                    `ottla topic reassign`
cluster.py                `ottla cluster`: declarations of its verbs
traffic/                  `ottla top`
support/                  `ottla bundle`
balance/                  `ottla cluster balance`
upgrades/                 `ottla cluster features | upgrade`
cleaning/                 `ottla cleaner`
"""
