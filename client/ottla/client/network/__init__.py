"""Connections to brokers, and the metadata of the cluster.

bootstrap.py            parsing of bootstrap addresses
address_check.py        validation of addresses before they are resolved
arguments.py            validation of the application's arguments
tls.py                  TLS for a client's connections
transport.py            the transport of connections: TCP, or a simulated one
login.py                SASL authentication
bearer_tokens.py        tokens for OAUTHBEARER, refreshed before they expire
web_fetch.py            small HTTP responses, bounded in size and time
broker_versions.py      API versions and features of one broker (pure)
connection.py           one connection to one broker, with one request at a time
blocking_connection.py  one connection without trio, for a command that sends one request
pipeline.py             one connection with several requests in flight
broker_link.py          a connection to one broker that is reopened when it is lost
reachability.py         log messages about unreachable brokers
cluster.py              the metadata of a cluster, and connections to its brokers
retries.py              retries of idempotent attempts
missing_topics.py       rules for the report of missing topics (pure)
active_controller.py    look-up of the active controller
answer_checks.py        validation of brokers' responses (pure)
client_block.py         the `async with` block of a client, and errors for other uses
calls_of_others.py      error messages for methods of other Python clients
background.py           background tasks that end with a client's block
trio_thread.py          a trio event loop in a thread, for the clients of an asyncio program
aio_bridge.py           trio clients wrapped as asyncio clients
"""
