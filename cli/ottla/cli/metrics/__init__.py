"""Commands for client telemetry (KIP-714).

metrics.py                `ottla metrics`
metrics_clients.py        client instances
metrics_subscriptions.py  subscriptions
metrics_tail.py           pushes as they arrive
"""
