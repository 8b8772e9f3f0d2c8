"""The replicas of this broker: leading, following, and maintaining the in-sync replicas.

partition.py               leader, in-sync replicas and high watermark of one partition: start here
partition_port.py          callbacks for the changes of partitions: wake-ups, flushes, ISR reviews
follower.py                progress of one follower, as its leader knows it
partition_table.py         the partitions on this broker
replica_manager.py         applies the metadata: leads, follows, creates and deletes replicas
replica_seams.py           interfaces to logs, followers and disks
log_work_driver.py         opens and deletes logs, so that no publisher waits for a disk

In-sync replicas
isr_changes.py             ISR changes that a leader requests, and the controller's answers
isr_keeper.py              decides which ISR changes to request, and how to apply the answers
isr_driver.py              sends the requests, and calls the keeper at its deadlines

Following
follower_fetch.py          requests of a follower, and the effects of the leader's responses
replica_fetcher_driver.py  one task and one connection for each leader followed
follower_duties.py         performs the flushes and truncations that a response requires
follower_duties_driver.py  runs these concurrently, for each leader

Shared
flush_driver.py            flushes records that are acknowledged only when durable
topic_traffic.py           bytes and records in and out, by topic
"""
