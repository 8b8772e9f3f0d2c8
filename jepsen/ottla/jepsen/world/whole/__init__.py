"""Engine C: whole controllers, brokers and clients, in virtual time, on seams of the world's.

whole_cluster.py  start here: one run from its seed to its verdict
loop.py           trio's loop: virtual time, an order the seed decides, processes that stop
network.py        delays, cuts, breaks; what is on its way
streams.py        byte streams in place of TCP
rpc.py            remote procedures in place of gRPC
probe.py          probes of addresses, by which a process is known to be gone
channels.py       a client's stream at the server, plain or encrypted
server.py         drives the broker's connections in place of the epoll
clock.py          clocks that drift and jump
machine.py        one machine: its disk, its process, kill, pause, loss of power
cluster.py        the nodes of a run
workload.py       the clients of a run
history.py        what clients saw, held to what Kafka promises
client_events.py  the same, before the judges of real clusters
nemesis.py        what goes wrong, within what the protocol promises to bear
mercy.py          who may lose what, so that it stays within that
disk_troubles.py  disks that fail in part or for a while, and what is demanded meanwhile
reassignments.py  partitions that move to other brokers
encryption.py     TLS of a run: who has which certificate, and what must not be said about it
authority.py      certificates that are the same bytes in every run
strangers.py      those whom no broker serves, and certificates that change
acls.py           the subject whose clients write and delete access control entries
throttles.py      the subject whose replicas are throttled
transactions.py   the subjects whose clients write in transactions
coordinator_deaths.py      brokers that die while they end a transaction
transactional_workload.py  these clients
transactional_life.py      one producer of them, and what is noted of it
quorum_damages.py  files of a stopped controller that are damaged
rebirth.py        topics that are made again under their name, settings that change meanwhile
calm.py           demands that count only while nothing else is wrong
compaction.py     log managers alone, whose logs are compacted all the time
compaction_model.py  what a compacted log must still show
watch.py          what happens to partitions and to compacted logs; rare states
ending.py         everything mended: progress within bounded time, and all replicas alike
"""
