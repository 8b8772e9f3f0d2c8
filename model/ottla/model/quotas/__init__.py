"""What brokers and controllers share of quotas.

quota_callback.py       limits that code of the operator's own decides
"""
