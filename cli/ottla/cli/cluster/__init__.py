"""Commands that start, stop, survey and change a cluster and its nodes.

A local cluster
up.py                     `ottla up`: start here
down.py                   `ottla down`
cluster_file.py           the plan of a local cluster, and the file that keeps it
cluster_format.py         formats its controllers once
forked_nodes.py           starts its nodes as forks of one process
local_cluster.py          runs its processes

One node
controller.py             `ottla controller`
broker.py                 `ottla broker FILE`
storage.py                `ottla storage`: format directories
add_scram.py              the users that a new cluster begins with
node_process.py           what both kinds of node share
file_modes.py             what other users of the machine may do to its files
doctor.py                 `ottla doctor`: Spark on this machine, retention of a cluster

A running cluster
status.py                 `ottla status`
quorum.py                 `ottla quorum`
brokers.py                `ottla broker list | describe | drain`
log_dirs.py               `ottla broker logdirs`
removal/                  `ottla broker unregister | remove`
survey.py                 asks the cluster
retention_findings.py     judges what holds retention up (pure)
health.py                 judges the answers: every reason names its cure
reassign.py               `ottla topic reassign`
reassignment_plan.py      decides which broker gets which replica (pure)
reassignment_requests.py  the requests
directory_moves.py        `ottla topic reassign --log-dir`: between directories of a broker
throttles.py              which replicas a throttled move names, and what is left over (pure)
throttle_requests.py      sets and removes throttles
throttled_moves.py        moves under a throttle that ends with them
cleaner.py                `ottla cleaner status | run | retry`
cleaner_passes.py         passes that are asked for, until their ends
cleaner_targets.py        the replicas that are named, and their brokers
move_bars.py              how far moves are, as bars
"""
