"""Checkers of histories: pure functions from a history and the facts of its run to a verdict.

table.py        the checkers by name
verdict.py      Finding, Verdict, RunFacts: the input and the result of a checker
log.py          rules for histories of sends and polls: Jepsen's rules for Kafka, and Ottla's own
log_reading.py  index of a history of sends and polls by partition log
log_values.py   rules about which records exist
log_order.py    rules about the order of sends and polls
log_figures.py  consumer lags, reported beside the verdict
compacted.py    agreement between readers and replicas of a compacted log
cycles.py       dependency cycles between operations: G0 and G1c
transactions.py atomicity, isolation and fencing of transactions
graph.py        strongly connected components and shortest paths of large graphs
wgl.py          search for a sequential order of concurrent calls
picture.py      data for a picture of such a search
registers.py    committed offsets as registers
offsets.py      registers of offsets committed without a group membership
groups.py       owners of the partitions of a group, and the offsets committed for them
metadata.py     topics created, changed and deleted, as every broker describes them
producer_ids.py uniqueness of producer ids and epochs
list_offsets.py end offsets above every acknowledged record
share_reading.py  index of a history of share groups by record
share_order.py   keys, delays, back-offs and priorities of share groups
shares.py       deliveries and acknowledgements of share groups, and their start offsets
availability.py share of operations that succeed, and recovery times after faults
servers.py      errors that the harness found in the servers' logs and directories

Ottla's own rules, beside those of Jepsen's Kafka workload. The checkers name them by number:

R1   real-time order: a record sent after another one was acknowledged has a higher offset
     (log: nonmonotonic-send, realtime-order; cycles: the levels -process and -realtime)
R2   an acknowledged record is read by every read past its offset (log: lost-write, unseen)
R3   reads are stable: an offset has one value, and a consumer reads a log record by record
     (log: inconsistent-offsets, poll-skip, nonmonotonic-poll)
R4   no record is shown too early (log: precommitted-read, truncated-read; transactions: G1b)
R5   idempotence: a record of an idempotent producer is in the log once (log: duplicate)
R6   transactions are atomic (log: torn-transaction, G1a; transactions: all its anomalies)
R7   a partition has one owner in a generation of a group, and no unread offset is committed
     (groups: all its anomalies)
R8   a send without acks=all promises nothing: its loss is no anomaly (log)
R9   operations succeed without faults, and soon after a fault (availability)
R10  servers report no unexpected error and leave sound directories (servers)
R11  a queue loses no record, settles it once, and never gives it to two members at a time
     (shares: all its anomalies)
"""
