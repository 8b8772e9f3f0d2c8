"""The replicas of this broker: leading, following, and keeping the in-sync set.

partition.py               leader, in-sync replicas and high watermark of one partition: start here
partition_port.py          what it wakes, and which flushes and reviews it has made
follower.py                what the leader knows of one follower
partition_table.py         the partitions on this broker
replica_manager.py         follows the metadata: becomes leader, becomes follower, deletes
replica_seams.py           what it asks of logs, followers and disks
log_work_driver.py         opens and deletes logs, so that no publisher waits for a disk

In-sync replicas
isr_changes.py             changes that a leader requests, and the controller's answers
isr_keeper.py              decides which changes to request, and what their answers mean
isr_driver.py              sends them, and keeps the time

Following
follower_fetch.py          requests of a follower, and what follows from the leader's answers
replica_fetcher_driver.py  one task and one connection for each leader followed
follower_duties.py         carries out flushes and truncations that a leader's answer asks for
follower_duties_driver.py  runs them side by side, for each leader

Around them
flush_driver.py            flushes what is acknowledged only when durable
topic_traffic.py           bytes and records in and out, by topic
"""
