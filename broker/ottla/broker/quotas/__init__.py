"""Quotas of replication on one broker; those of clients are in `node/quotas`.

replication_quota.py     bandwidth of throttled replicas
move_throttle_driver.py  throttles the copying of logs between directories
"""
