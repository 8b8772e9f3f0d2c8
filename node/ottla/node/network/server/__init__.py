"""Socket server of a node: accepts clients and hosts their connections.

server_driver.py          one private epoll for every client socket: start here
direct_wait_driver.py     waits for clients without trio's scheduler while no other task can run
server_seam.py            interface of a server, for the epoll server and a simulation
server_opening_driver.py  opens a server for the duration of a block
channel_driver.py         one socket and its connection
hosting.py                hosts connections over any transport; an error closes only one of them
hosting_driver.py         the tasks of a server's connections
pending_work.py           awaits a handler's pending work, and passes its errors to the connection
closed_hosts.py           stand-ins for the host and the memory share of a closed connection
descriptors_driver.py     number of connections that leaves enough file descriptors for the logs
"""
