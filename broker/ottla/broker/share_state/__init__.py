"""Share coordinator: durable state of share partitions, and the access to it (KIP-932).

The coordinator
share_coordinator.py          leadership, requests, the append of an event-loop iteration: start
                              here
share_state_shard.py          the states of one partition of `__share_group_state`
share_partition_state.py      state of one share partition: epochs, start offset, fencing
state_batches.py              merge of the delivery states of offset ranges
share_state_records.py        Kafka's records of these states
share_state_apis.py           the requests Initialize, Read, Write, Delete and ReadSummary
recent_writes.py              rate and latency of writes
pruning_driver.py             deletes records that later snapshots supersede

The access to all coordinators of the cluster
share_persister_driver.py     finds coordinators, sends calls, repeats failed ones
persister_calls.py            order of calls, their requests and answers
local_share_persister.py      the coordinator of this broker
"""
