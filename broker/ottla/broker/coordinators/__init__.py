"""Coordinators: code shared by the coordinators of groups, share partitions and transactions.

shard_coordinator.py  leadership, requests, the append of an event-loop iteration: start here
shard_coordinator_driver.py  its tasks: loading, deadlines, work in steps
effects.py           records to append and responses to send, as one event decided them
performer.py         the one function that performs effects, through the ports of a shard
led_shard.py         one partition of a coordinator's topic that is led here; implements these ports
log_replay.py        replays the log of a partition into its shard
record_batches.py    encodes the records of events as record batches
commit_wait.py       responses that wait for the high watermark
answer_collector.py  one response that is composed of several
backlog.py           work that takes longer than one event-loop iteration, in steps
timers.py            deadlines that are often moved and seldom expire
share_persister.py   interface through which the durable state of share partitions is accessed
placement.py         the partition that a group or a transactional id belongs to
find_coordinator.py  FindCoordinator, and the creation of the coordinators' topics
"""
