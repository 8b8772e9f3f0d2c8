"""Clusters of real processes: nodes in their own networks, faults injected into them, and runs.

runs/                one run: its plan, load, faults, evidence and verdict
nemeses/             faults of real processes
cluster.py           a cluster; cluster_*.py: its files, security, claimed resources and guardian
fault_limits.py      decides which further faults the cluster must tolerate
nodes.py             one node: a real `ottla` process, with its disk and its log (node_log.py)
node_main.py         a node with a deliberate bug
network.py           the network of a cluster; network_*.py: its two implementations and its faults
disks.py, clocks.py  a node's disk of limited size, and wall clocks that jump
abilities.py         the kinds of faults that this machine allows, and why others are missing
commands.py          system commands, and commands_async.py the same for trio
store.py             the folders of runs
"""
