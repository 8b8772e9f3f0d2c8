"""The network of a broker: bytes in, requests dispatched, answers out, all of it bounded.

Sockets
server_seam.py          what accepts clients: the epoll, or the simulated world
server_driver.py        one private epoll for every client socket: start here
server_opening_driver.py  opens that server for a block
channel_driver.py       one socket and its connection
hosting.py              hosts connections over any transport: the edge at which one ends alone
pending_work.py         handlers that wait, and what their errors do to a connection
hosting_driver.py       the tasks of a server's connections
listener.py             an address to listen on, plain or encrypted
tls/                    what an encrypted listener needs beyond that
descriptors_driver.py   number of connections that leave enough descriptors for the logs

Requests
connection.py           frames in, requests started in order, chunks out; no I/O
connection_limits.py    how much one connection may ask of us
parted.py               what stands for the host of a connection that has closed
buffers.py              bytes that arrived and belong to no request yet, and what is to be sent
guard.py                sees frames first, where clients are asked who they are
dispatch.py             (api key, version) → body → handler; the contract of a handler
steps.py                costly answers, cut into steps between which others have their turn
paced_driver.py         runs these steps: one in an event-loop iteration, decoding in a thread
loopback_driver.py      requests of a broker to itself, without a socket
side_by_side_driver.py  parts of a request that wait for disks at the same time
purgatory.py            requests that wait, by key and deadline
alarm_driver.py         sleeps until the next deadline

Answers
response_queue.py       answers in request order
ready_answers.py        answers kept for requests that are asked again in the same bytes

Bounds and times
request_memory.py       the pool that bounds request bytes over all connections
response_memory.py      the pool that bounds unread answers
memory_sweep_driver.py  frees request memory that a connection holds too long
loop_clock.py           the loop's stopwatch, and when its turn began
request_times.py        where the time of requests goes
request_traces.py       the phases of sampled requests, one by one
"""
