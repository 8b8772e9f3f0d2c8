"""Quotas: how much a client may ask of this broker, and for how long it is held back.

Use
client_quotas.py  what each client used of one quota, and how long it is throttled

Effect
request_quotas.py    charges requests and answers, and mutes their connections: start here
quota_publisher.py   puts the quotas of the metadata in force
"""
