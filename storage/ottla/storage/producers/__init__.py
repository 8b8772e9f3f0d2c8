"""Sequence numbers, epochs and transactions of idempotent producers, and the files that store them.

producer_state.py     the producers of one log: start here
verification.py       guards of transactions between verification and append (KIP-890)
producer_files.py     producer snapshots of a log: written, loaded, deleted
producer_snapshot.py  the `.snapshot` file
producer_batches.py   the side file of a snapshot, with data that Kafka's format lacks
"""
