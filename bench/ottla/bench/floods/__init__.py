"""Floods of strangers, and what a bystander waits meanwhile, on Ottla and on Apache Kafka.

__main__.py   starts both servers, floods one after the other, and prints a table: start here
senders.py    what strangers send: TLS records without data, tiny ones, frames without an end
bystander.py  a client that asks steadily and notes how long it waits
joins.py      how a broker joins a controller whose listener idle connections hold
"""
