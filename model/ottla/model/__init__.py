"""Basic types that all packages share. This package imports no other package of Ottla.

ids.py                ids, offsets and epochs as distinct types; topic and partition names
values.py             frozen values, created faster than by Python's dataclasses
errors.py             Kafka's error codes as one table, and the families of exceptions
limits.py             limits that are not settings, and the asserted relations between them
seams.py              interfaces of time, randomness and the network, which a simulation replaces
asyncio_thread_driver.py
                      an asyncio loop on its own thread, for libraries that need one
background_driver.py  restarts a background task after an unexpected exception
unexpected_errors.py  counts and logs unexpected exceptions
log_events.py         stable names of log messages, and their fields
log_limiter.py        limit of log messages that clients can cause
explanations.py       limit of the error messages in one response
internal_topics.py    names of the topics in which brokers store their own state
garbage.py            pauses of the garbage collector
compiled.py           the installed form, compiled or interpreted, and mypyc's attributes
buggify.py            rare choices that only simulations make
run_now.py            runs a coroutine that never waits, without an event loop
signal_handlers_driver.py
                      signal handlers that are installed for the duration of a block
install_hint.py       the command that installs an extra
version.py            the version of all packages
unicode_text.py       texts that UTF-8 cannot encode
visible_text.py       untrusted texts, made safe to print
amounts.py            bytes, durations and times as text
points_in_time.py     points in time as people write them
text_tables.py        layout of tables, and the rule by which a wide one is fitted
security/             credentials, tokens, access control entries
quotas/               measured rates, and the limits of clients
tls/                  certificates, and TLS contexts and streams
balance/              the planner of moves that balance a cluster or empty a broker
settings/             every Kafka setting, declared once
"""
