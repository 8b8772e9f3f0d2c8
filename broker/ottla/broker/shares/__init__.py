"""Share partitions: delivery of records to the members of share groups (KIP-932).

share_fetch.py            ShareFetch: acknowledges, acquires and sends records: start here
share_acknowledge.py      ShareAcknowledge: ends or renews the acquisition of records
describe_delivery.py      DescribeShareDelivery: number of records by the reason why they wait
describe_records.py       DescribeShareRecords: records in flight, their members and locks
share_apis.py             registers these handlers
share_delivery.py         sessions and share partitions of a broker, as these handlers use them
share_sessions.py         the partitions that a member fetches, and the epoch of its last request
acknowledgement_rules.py  checks of acknowledgements in requests
led_share.py              a share partition at its leader: loading, writing, locks, leadership
share_read.py             records of the log that a member may acquire, and their bytes
look_ahead.py             reads the log ahead, if records are delayed or ordered by key or priority
ordered_read.py           acquires the records whose turn it is, and reads their batches
share_partition.py        delivery state of one share partition, its locks and its writes
acquired_ranges.py        ranges of records that a member acquires
delivery_window.py        spans of records with equal delivery state
dead_letters.py           steps of the records that wait for their dead letter
dead_letter_topic.py      checks of dead letter topics, and the records written to them
letter_batches.py         records that dead letters copy, and requests that write them
dead_letters_driver.py    sends dead letters to the leaders of dead letter topics
share_figures.py          counters for metrics
ordering/                 order of deliveries: delays, back-off, keys and priorities
"""
