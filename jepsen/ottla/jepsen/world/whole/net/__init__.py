"""The network of a whole cluster: simulated sockets, servers and remote procedures.

network.py   delays, cuts and failures of links, and the messages in flight
streams.py   byte streams in place of TCP
rpc.py       remote procedures in place of gRPC
probe.py     probes of addresses, which detect dead processes
channels.py  a client's stream at the server, plain or encrypted
front.py     listeners of controllers: remote procedures alone
server.py    hosts the broker's connections in place of the epoll server
"""
