"""Coordinator of the transactions whose partitions of `__transaction_state` this broker leads.

transaction_coordinator.py   the shards led here, and the writes that wait for commits: start here
                             (leadership, appending: `coordinators/shard_coordinator`)
transaction_shard.py         the transactional ids of one partition of `__transaction_state`
transaction_rules.py         the requests that each state permits: the tables of both protocols
transaction.py               one transactional id: its state, and its possible steps
transaction_records.py       the records of `__transaction_state`, in Kafka's formats
state_commit.py              writes that wait until they are committed
markers.py                   queues of markers for each broker, and the outcome of responses
marker_driver.py             sends the markers
producer_id_supply.py        interface to the source of new producer ids
producer_id_stock_driver.py  producer ids in stock, fetched in blocks
transaction_routes.py        registers the APIs
transaction_apis.py          InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn
transaction_admin_apis.py    DescribeTransactions, ListTransactions
"""
