"""Oracles over every API: what one request may cost, and that no request ends a process.

kafka_requests.py  requests of every API and version, made from the schemas: start here
kafka_values.py    what their fields hold: names that exist, names that do not, extremes
"""
