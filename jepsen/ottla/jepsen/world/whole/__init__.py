"""Search engine `whole`: whole controllers, brokers and clients in virtual time, on simulated
disks, clocks and networks.

whole_cluster.py  start here: one run, from its seed to its outcome
loop.py           trio's event loop: virtual time, order decided by the seed, processes that stop
net/              links, streams, servers and remote procedures between the nodes
faults/           faults that the protocol promises to tolerate
clock.py          clocks that drift and jump
machine.py        one machine: its disk, its process, kills, pauses, power cuts
cluster.py        the nodes of a run
workload.py       the clients of a run
history.py        results that clients received, checked against Kafka's guarantees
client_events.py  the same results as a history for the checkers of real clusters
encryption.py     TLS of a run: certificates, and failures that must not happen
authority.py      certificates with the same bytes in every run
acls.py           the subject whose clients create and delete ACLs
controller_clients.py  the subject whose clients send admin requests to controllers
throttles.py      the subject whose replicas are throttled
transactions.py   the subjects whose clients write in transactions
transactional_workload.py  the clients that write in transactions
transactional_life.py      one transactional producer, and the record of its transactions
tier/             subjects whose topics are copied to a simulated object store
shares.py         the subjects whose clients are members of a share group
ordered_shares.py  the same with keys, delays, back-offs and priorities
share_workload.py the clients that use a share group as a queue
compaction.py     the subject of log managers alone, whose logs are compacted all the time
compaction_model.py  expected content of a compacted log
watch.py          counters of partition changes and compactions; rare states
ending.py         the end of a run: all faults healed, progress within bounded time, equal replicas
"""
