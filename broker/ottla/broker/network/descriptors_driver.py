"""How many connections the process's descriptors allow: the other half belongs to the storage."""

import resource

OWN_DESCRIPTORS = 100
"""What a broker holds besides clients and logs: epolls, listeners, gRPC, leaders, scrapes."""

KEPT_FROM_CLIENTS = 32
"""What no client takes, however many descriptors the logs have: half of what these leave free.
Without it a metadata log that rolls would end the process."""

CONNECTIONS_MIN = 16
"""Allowed however few descriptors there are: somebody has to be told what is wrong."""


def connection_count_allowed() -> int:
    """Return how many connections leave the storage as many descriptors (RLIMIT_NOFILE)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max((limit - OWN_DESCRIPTORS) // 2, CONNECTIONS_MIN)


def client_descriptor_max() -> int:
    """Return the highest descriptor that a client's connection may have (RLIMIT_NOFILE)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit - min(KEPT_FROM_CLIENTS, limit // 8)
