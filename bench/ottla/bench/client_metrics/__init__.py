"""Clients that push metrics (KIP-714).

telemetry.py          lost pushes, and the cost of a push: start here
telemetry_beside.py   cost to a steady producer, with and without pushes
pushing_clients.py    the clients that push
telemetry_payload.py  the metrics that they push
steady_produce.py     the steady producer, as a process
"""
