"""Registration and liveness of brokers.

brokers.py      registration, heartbeats, fencing, controlled shutdown
sessions.py     sessions of brokers: in-memory state of the active controller
attendances.py  detection of brokers whose process has ended, before their sessions expire
"""
