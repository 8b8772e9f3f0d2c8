"""Requests on the partitions of this broker.

data_apis.py               registers the handlers of clients: start here
early_requests.py          has requests wait for logs that are being made
produce.py                 Produce
small_produces.py          the produces of one small batch, answered from their frames
produced_parts.py          a partition's part of it: what is wrong with the batch, and the answer
fetch.py                   Fetch
waiting_fetch.py           a fetch that waits for enough to answer
fetch_read.py              what a fetch asks for, and one partition of it read
cold_reads.py             what fetches have brought into memory
read_ahead_driver.py       brings it in, on the workers of the directories
fetch_session.py           fetch sessions (KIP-227)
single_fetches.py          the fetches of a single partition, answered without those steps
list_offsets.py            ListOffsets
leader_epochs.py           OffsetForLeaderEpoch
delete_records.py          DeleteRecords
producer_ids.py            producer ids, from blocks
transactions.py            the refusal of transactions
transactional_appends.py   what the batches of a transaction are appended with
transaction_questions.py   what their coordinators are asked
write_txn_markers.py       WriteTxnMarkers: the ends of transactions
leader_hints.py            the current leader, in the answer to a request sent elsewhere (KIP-951)

replica_apis.py            registers the three handlers below
alter_replica_log_dirs.py  AlterReplicaLogDirs
describe_log_dirs.py       DescribeLogDirs
describe_producers.py      DescribeProducers
"""
