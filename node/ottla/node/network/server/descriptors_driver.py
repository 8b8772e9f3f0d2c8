"""Computes the number of connections that the process's file descriptors allow. Half of the
descriptors are left to the storage."""

import resource

OWN_DESCRIPTORS = 100
"""Number of file descriptors that a broker needs apart from clients and logs: epolls, listeners,
gRPC, leaders, scrapes."""

KEPT_FROM_CLIENTS = 32
"""Maximum number of file descriptors that clients may not use, independent of the number of open
log files. Without this reserve, rolling the metadata log could fail and end the process."""

CONNECTIONS_MIN = 16
"""Number of client connections that are allowed even with few file descriptors, so that operators
can connect and see the reason."""


def connection_count_allowed() -> int:
    """Return the number of client connections with which clients and storage get equal numbers of
    file descriptors (RLIMIT_NOFILE)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max((limit - OWN_DESCRIPTORS) // 2, CONNECTIONS_MIN)


def client_descriptor_max() -> int:
    """Return the highest descriptor number that a client's socket may have (RLIMIT_NOFILE)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit - min(KEPT_FROM_CLIENTS, limit // 8)
