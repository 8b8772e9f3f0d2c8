"""Connections to brokers, and who leads what.

bootstrap.py    where a client asks first
tls.py          TLS from the client's side
transport.py    how connections are made: TCP, unless the world says otherwise
login.py        who a client says it is, to brokers that ask
bearer_tokens.py  tokens of OAUTHBEARER, asked for again before they end
web_fetch.py    small answers of web servers, bounded
spoken_versions.py  versions and features of one broker (pure)
connection.py   one connection to one broker, whose users take turns
blocking_connection.py  the same without trio, for a command that asks once
pipeline.py     one connection with several requests in flight
broker_link.py  a connection to one broker that comes back
cluster.py      who leads what; a connection to whoever is asked
patience.py     repeats what may be repeated without harm
told.py         what brokers tell, read with caution (pure)
background.py   tasks that serve a block and end with it
trio_thread.py  a trio loop in a thread, for clients of an asyncio loop
aio_bridge.py   clients of trio as clients of asyncio
"""
