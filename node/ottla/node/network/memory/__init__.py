"""Memory of requests and responses, bounded over all connections of a broker.

buffers.py              received bytes that wait to be served, and bytes to be sent
request_memory.py       the pool that bounds request bytes over all connections
response_memory.py      the pool that bounds unread response bytes
memory_sweep_driver.py  closes connections that use request memory for too long
"""
