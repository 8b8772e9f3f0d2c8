"""The network of a node: received bytes, request dispatch and responses. All memory is bounded.

Sockets
server/      the socket server: client connections over any transport
listener.py  an address to listen on, plain or encrypted
tls/         handshakes, channels and certificates of encrypted listeners
memory/      the pools that bound the bytes of requests and responses

Requests
connection.py           parses frames, starts requests in order, queues output; no I/O
connection_limits.py    limits of one connection
connection_quotas.py    quotas of connections by node, listener and address
guard.py                receives frames before the dispatcher until the client has authenticated
dispatch.py             (api key, version) → body → handler; the contract of a handler
steps.py                costly responses, built in steps between which other requests are served
paced_driver.py         runs steps of responses, one per event-loop iteration; decodes in a thread
loopback_driver.py      requests of a broker to itself, without a socket
side_by_side_driver.py  concurrent parts of a request that wait for disks
purgatory.py            waiting requests, by key and deadline
alarm_driver.py         sleeps until the next deadline

Responses
response_queue.py  responses in request order
response_cache.py  cache of encoded responses, for requests repeated with the same bytes

Times
loop_clock.py      monotonic clock of the event loop, and the start of its iteration
turn_end.py        work done once for all requests of an iteration
request_times.py   request durations by phase
latency_window.py  latency of one API's requests since the last reading
request_traces.py  phases of sampled requests
"""
