"""Commands that start, stop, survey and change a cluster and its nodes.

A local cluster
up.py                     `ottla up`: start here
down.py                   `ottla down`
cluster_file.py           the plan of a local cluster, and its file cluster.json
console_process.py        the console beside a local cluster
cluster_format.py         formats the controllers once
forked_nodes.py           forks the nodes from one process
local_cluster.py          the processes of the cluster
local_tier.py  tiered storage of a local cluster

One node
server/                   `ottla server FILE`: the roles of the file
controller.py             `ottla controller`
broker.py                 `ottla broker FILE`
storage.py                `ottla storage`: format directories
formatting/               directories and first content of a node
add_scram.py              SCRAM credentials of a new cluster
node_process.py           process of a controller or broker
file_modes.py             warnings of files that other users of the machine can access
doctor.py                 `ottla doctor`: Spark on this machine, retention of a cluster

A running cluster
explain.py                `ottla explain`: its verbs from the table of `ottla.insight`
mcp.py                    `ottla mcp`: the same answers for agents
console.py                `ottla console`: web pages
status.py                 `ottla status`
quorum.py                 `ottla quorum status`
voters/                   `ottla quorum add | remove | replace | unregister | replicas | log`
brokers.py                `ottla broker list | describe | drain`
log_dirs.py               `ottla broker logdirs`
removal/                  `ottla broker unregister | remove`
moves/                    `ottla topic reassign`
cluster.py                `ottla cluster`: its verbs
traffic/                  `ottla top`
support/                  `ottla bundle`
balance/                  `ottla cluster balance`
cleaning/                 `ottla cleaner`
"""
