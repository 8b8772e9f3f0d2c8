"""Handlers of requests that read or write the partitions of this broker.

data_apis.py               registers the handlers of client requests: start here
early_requests.py          delays requests for partitions whose logs are still being created
produce.py                 handler of Produce
produce_answers.py         Produce responses of one partition and one topic
fetch.py                   handler of Fetch
fetch_read.py              targets and limits of a fetch, and the read of one partition
fetch_answers.py           Fetch responses for the generated codec
cold_reads.py              file ranges being loaded into the page cache for fetches
read_ahead_driver.py       loads these ranges on the worker threads of the log directories
fetch_session.py           fetch sessions (KIP-227)
list_offsets.py            handler of ListOffsets
leader_epochs.py           handler of OffsetForLeaderEpoch
delete_records.py          handler of DeleteRecords
producer_ids.py            producer ids from blocks that the controller allocates
transactional_appends.py   verification of transactional batches before their append
verification_requests.py   verification requests to transaction coordinators (KIP-890)
write_txn_markers.py       handler of WriteTxnMarkers: commit and abort markers
leader_hints.py            the current leader in refusals of Produce and Fetch (KIP-951)

replica_apis.py            registers the three handlers below
alter_replica_log_dirs.py  handler of AlterReplicaLogDirs
describe_log_dirs.py       handler of DescribeLogDirs
describe_producers.py      handler of DescribeProducers
"""
