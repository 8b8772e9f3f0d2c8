"""Metrics of this node.

instruments.py          start here: counters, gauges, histograms, and their registry
kafka_names.py          conversion of Kafka's MBean names to Prometheus names
kafka_families.py       metrics of one or a few numbers, with the names of Kafka's MBeans
prometheus_text.py      a registry as Prometheus text
metrics_http_driver.py  HTTP server of /metrics
loop_pause_driver.py    pauses and idle time of the event loop
own_otlp.py             a registry as OTLP messages
own_metrics_driver.py   task that sends these messages to collectors
"""
