"""Code that controller and broker processes have in common.

quorum/                    start here: one member of the quorum, its log and its snapshots
quorum_files/              a member's other files, and the repair of damaged ones
local/                     nodes as local processes, and their certificates
network/                   the network of Kafka's protocol: bytes, request dispatch, responses
authentication/            authentication of clients
authorization/             authorization of clients
quotas/                    quotas of clients and of connections
admin/                     requests of administrators that both roles answer alike
part_registry.py           tasks, metrics, settings and problems that components register
identity.py                formatting of directories, and the identity of a node
properties.py              parser of `.properties` files
seams.py                   interfaces between a node and its environment
seams_driver.py            the interfaces of `seams.py` on a real machine
clock_driver.py            clock and random numbers of the machine
address_probe.py           interface of the probe that detects whether a peer's process has ended
address_probe_driver.py    the probe of `address_probe.py` on a real machine, by TCP connections
process_driver.py          resource limits, signals, the garbage collector, free memory
process_metrics_driver.py  metrics of this process, from the kernel and from Python
collector_pause_driver.py  pauses of the garbage collector while large responses are built
log_output_driver.py       files and streams of log messages
authorizer_metrics.py      metrics of a node's authorizer
free_space_metrics.py      metrics of the free disk space of a node
"""
