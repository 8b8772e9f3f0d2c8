"""Limits that are not settings, and the relations between them.

A number that an operator may change is a setting (`settings/`). The numbers here are fixed by a
format or protect the process. Relations between them are asserted at import.
"""

from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

INT16_MAX: Final = (1 << 15) - 1
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1

TOPIC_NAME_LENGTH_MAX = 249
"""Maximum length of a topic name. Together with `-`, a partition number of ten digits and a suffix,
it is still a valid file name."""

BATCH_HEADER_BYTES: Final = 61
"""Size in bytes of the v2 record batch header, from base offset to record count (KIP-98)."""

FRAME_LENGTH_BYTES: Final = 4
"""Size in bytes of the length field before every request and response."""

FRAMES_PER_TURN_MAX = 32
"""Number of requests of one connection that are served in succession before other connections are
served. A larger number improves the throughput of a busy client. A smaller one improves the latency
of other clients."""

TURN_NS_MAX = 5_000_000
"""Time in ns after which an event-loop iteration of the network ends, give or take one request, so
that other tasks run. A shorter time keeps heartbeats punctual under load. With a longer one, less
time is lost by switching tasks."""

REQUESTS_IN_FLIGHT_MAX = 64
"""Number of requests of one connection that may wait for a response. Further requests are left
unread in the socket."""

WRITE_BACKLOG_BYTES_MAX = 8 * MIB
"""Number of response bytes of one connection that may wait to be sent. Above it, no requests are
read from the connection."""

FRAME_GRACE_MS = 30_000
FRAME_BYTES_PER_SECOND_MIN = 512 * KIB
"""Minimum rate, in bytes per second, at which a request must arrive.

It allows 30 s after the first byte, and 2 s for each MiB that the request announces (100 MiB: 230
s). Kafka's producers give up after `request.timeout.ms`, 30 s. A larger rate cuts off producers
behind slow lines; a smaller rate lets any client occupy memory for longer.
"""

MEMORY_CHECK_MS = 5_000
MEMORY_PROGRESS_BYTES_MIN = MIB
"""Minimum progress of a connection's request while other connections wait for request memory: a MiB
in 5 s, or an eighth of a smaller request.

Among the slower connections, the ones with the largest requests are closed. A smaller value
releases the memory later; a larger value cuts off producers behind slow lines while the broker is
busy.
"""

RESPONSE_MEMORY_BYTES_MAX = 128 * MIB
"""Maximum size in bytes, over all connections, of encoded responses that clients have not read yet.
File slices do not count. A smaller limit cuts off slow readers of large responses sooner; a larger
limit lets them use more memory."""

DECOMPRESSED_RECORD_BYTES_MAX = (1 << 31) - 9
"""Kafka's default and largest value of `max.decompressed.message.bytes`: no bound on a record."""
DECOMPRESSED_BATCH_BYTES_MAX = 128 * MIB
"""Largest decompressed size of one batch, in bytes. A larger batch is refused as a decompression
bomb."""

USER_OPERATION_RECORDS_MAX = 10_000
"""Number of metadata records that one user operation may write (KRaft's limit). An operation with
more records is refused with POLICY_VIOLATION."""

METADATA_BATCH_BYTES_MAX = 8 * MIB
"""Largest batch of the metadata log, in bytes. A gRPC message must have room for one batch."""

RPC_MESSAGE_BYTES_MAX = 64 * MIB
"""Maximum size in bytes of a gRPC message between nodes, in either direction."""

PRODUCER_ID_BLOCK_COUNT = 1_000
"""Number of producer ids that a broker gets from the controller by one request (KIP-730)."""

PRODUCER_BATCHES_KEPT = 5
"""Number of batches that are remembered per producer to detect duplicates. A client may have this
many batches in flight."""

PRODUCERS_PER_LOG_MAX = 10_000
"""Number of producers that one log remembers. With a smaller number, a client that invents ids can
evict a producer between two attempts; with a larger number, a roll and an eviction block the event
loop for longer."""

PRODUCERS_PER_LOG_SURE = 64
"""Number of producers that a log may always remember, regardless of the number in other logs."""

PRODUCERS_MAX = 250_000
"""Number of producers that all logs of a broker remember together, at 0.6 to 1.6 KB each. With a
smaller number, producers of many partitions are evicted early; with a larger number, one client can
use more memory."""

assert TOPIC_NAME_LENGTH_MAX + len("-2147483647") < 4096
assert METADATA_BATCH_BYTES_MAX < RPC_MESSAGE_BYTES_MAX
assert WRITE_BACKLOG_BYTES_MAX < RESPONSE_MEMORY_BYTES_MAX
assert FRAMES_PER_TURN_MAX <= REQUESTS_IN_FLIGHT_MAX
