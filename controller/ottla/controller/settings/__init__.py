"""Changes of dynamic settings, client quotas and finalized features.

configs.py          dynamic settings of topics, brokers, groups and client metrics
client_quotas.py    quotas of users, client ids and IP addresses
update_features.py  finalized features (KIP-584)
"""
