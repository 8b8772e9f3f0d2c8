"""Socket server of a controller's listeners (the front): accepts gRPC from nodes and Kafka's
protocol from clients at one port.

first_bytes.py           detection of a connection's protocol by its first bytes
fair_places.py           limit on connections, shared fairly among the peers' addresses
spliced_connection.py    one connection of a node, and its connection to gRPC's own server
front_driver.py          the socket server, which accepts all connections: start here
front_metrics.py         metrics of the connections
front_seam.py            interface of the front, for sockets and for the simulation
front_opening_driver.py  opens the front of a controller for the duration of a block
"""
