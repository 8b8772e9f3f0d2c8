"""Transactions: the coordinator of those whose partition of `__transaction_state` is led here.

transaction_driver.py        the shards led here, what waits for commits: start here (loading,
                             appending: `groups/shard_coordinator_driver`)
transaction_shard.py         the transactional ids of one partition of `__transaction_state`
transaction_rules.py         what a request may do with one: the tables of both protocols
transaction.py               one transactional id: what is known of it, and every step it may take
transaction_records.py       the records of `__transaction_state`, in Kafka's formats
state_commit.py              writes that wait until they are committed
markers.py                   which broker writes which markers, and what its answer means
marker_driver.py             sends them
producer_id_stock_driver.py  producer ids at hand

transaction_routes.py        registers the APIs
coordinator_port.py          what handlers need of the coordinator
transaction_apis.py          InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn
transaction_admin_apis.py    DescribeTransactions, ListTransactions
"""
