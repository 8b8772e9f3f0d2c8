"""Random walk on replicated partitions: real brokers and controller decisions under random faults.

replication_walk.py       the adversary: start here
replication_losses.py     the same walk with disks that have lost acknowledged records
replication_forgeries.py  the same walk with forged requests
replication_cluster.py    brokers, controller and invariant checks
replication_messages.py   messages between brokers and the controller
replication_clients.py    producers and consumers
replication_batches.py    batches of the producers
broker_life.py            one process of a broker
disk_store.py             a broker's logs on a simulated disk
"""
