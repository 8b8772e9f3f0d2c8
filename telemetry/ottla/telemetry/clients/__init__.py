"""Clients that push metrics (KIP-714).

Requests
subscriptions.py  the subscription of one client, from all that match it
gate.py           the earliest times of a client's next request and push
instances.py      client instances, and the decision on each of their requests
offering.py       the decision whether the two APIs are offered

Pushes
ingest_driver.py  start here: passes pushes to one worker thread, then to the exporters
push_work.py      processing of pushes in the worker thread
unpack.py         decompression of a payload within a bound
otlp_bounds.py    bounds on the parts, points and names of a message
otlp.py           OTLP messages: parsing, labelling, and conversion to points
client_labels.py  labels of a client
outline.py        series and values of a push
layout.py         positions of the numbers in a push, so that the next one need not be decoded
client_series.py  series of clients as cumulative values for Prometheus
client_record.py  a push as a record of the topic `__client_metrics`
exporter.py       interface of exporters
"""
