"""The operations that a run sends to a cluster, and the final reads that check their effect.

load.py             interfaces: generator, client, operation, completion (pure)
table.py            the workloads by name: generators with their clients

queue.py            unique values sent to logs and polled from them (pure)
offsets.py          committed offsets as registers (pure)
group.py            members that join, leave and crash (pure)
metadata.py         topics created, changed, deleted and described (pure)
producer_ids.py     producer ids, none of which may be allocated twice (pure)
list_offsets.py     end offsets of logs (pure)
share.py            a share group as a queue: records taken, settled or released (pure)
transactions.py     transfers between logs, copies of consumed records, committed reads (pure)

keys.py             keys of logs, and the replacement of full topics (pure)
log_model.py        the offsets written and read so far, for generators (pure)
pace.py             limit of the operations per second (pure)
crashes.py          times at which clients crash (pure)
final_reads.py      the reads at the end of a run (pure)
subscribers.py      the consumer group of each thread (pure)
"""
