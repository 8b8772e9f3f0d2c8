"""Benchmarks that run against any Kafka-compatible broker, side by side.

commands.py    `ottla bench`: arguments, and how a result is printed
processes.py   what local processes cost: CPU seconds and memory, from /proc
result.py      one measured run as figures
load.py        produce, consume and end-to-end load, driven by librdkafka
requests.py    small requests over raw sockets: what one request costs a broker
"""
