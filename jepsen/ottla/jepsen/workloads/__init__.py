"""What load is sent, and what is read back.

load.py             a generator, a client, an operation and how it ended (pure)
table.py            the workloads by name: generators with their clients

queue.py            unique values sent to logs and polled from them (pure)
offsets.py          committed offsets as registers (pure)
group.py            members that come, go and crash (pure)
metadata.py         topics made, changed, deleted and asked about (pure)
producer_ids.py     ids that nobody else was given (pure)
list_offsets.py     where logs end (pure)
transactions.py     transfers, copies with their offsets, readers of what is committed (pure)

keys.py             keys of logs, and topics that make room for new ones (pure)
log_model.py        what a generator knows of logs (pure)
pace.py             how fast a run goes at most (pure)
crashes.py          when clients die (pure)
final_reads.py      the reads at the end (pure)
subscribers.py      which threads share a group (pure)
"""
