"""Quotas of clients and of connections on one node.

request_quotas.py   charges requests and responses, and mutes connections: start here
quota_types.py      the table of client quotas, by the keys of their limits
client_quotas.py    usage of one quota by each client, and its throttle time
client_traffic.py   counts of all clients while an operator watches
quota_usage.py      current usage, throttled clients first
quota_metrics.py    metrics of client quotas and of connection rates
quota_publisher.py  applies the quotas of the metadata
idle_driver.py      deletes the usage of clients that were idle for an hour
"""
