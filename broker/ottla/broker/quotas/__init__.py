"""Replication quotas of one broker; client quotas are in `node/quotas`.

replication_quota.py     bandwidth of throttled replicas
move_throttle_driver.py  throttles the copying of logs between directories
"""
