"""Quotas: how much a client may ask of this broker, and for how long it is held back.

Use
client_quotas.py      what each client used of one quota, and how long it is throttled
replication_quota.py  what throttled replicas used, and whether they have to wait
connection_quotas.py  connections by broker, listener and address: which wait or are closed
quota_usage.py        what clients use at present, the throttled ones first

Effect
request_quotas.py        charges requests and answers, and mutes their connections: start here
quota_publisher.py       puts the quotas of the metadata in force
move_throttle_driver.py  holds back logs that move between directories
idle_driver.py           forgets what was idle for an hour
"""
