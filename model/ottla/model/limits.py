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
"""Maximum length of a topic name, in characters. A name of this length is still a valid file name
after `-`, a partition number of ten digits and a suffix are added."""

BATCH_HEADER_BYTES: Final = 61
"""Size in bytes of the v2 record batch header, from base offset to record count (KIP-98)."""

FRAME_LENGTH_BYTES: Final = 4
"""Size in bytes of the length field before every request and response."""

FRAMES_PER_TURN_MAX = 32
"""Maximum number of requests of one connection that are served before other connections get their
turn. A larger number improves the throughput of a busy client. A smaller number improves the
latency of the other clients."""

TURN_NS_MAX = 5_000_000
"""Time in ns after which the network stops serving requests in one event-loop iteration, so that
other tasks run. It finishes the current request first. With a shorter time, heartbeats are less
delayed under load. With a longer time, less time is spent on switching tasks."""

REQUESTS_IN_FLIGHT_MAX = 64
"""Maximum number of requests of one connection that may wait for a response. Further requests are
left unread in the socket."""

WRITE_BACKLOG_BYTES_MAX = 8 * MIB
"""Maximum number of response bytes that may wait to be sent on one connection. Above it, the node
reads no further requests from the connection."""

FRAME_GRACE_MS = 30_000
FRAME_BYTES_PER_SECOND_MIN = 512 * KIB
"""Minimum rate, in bytes per second, at which a request must arrive.

A request may take 30 s from its first byte, and 2 s more for each MiB of the size that it
announces. A request of 100 MiB may therefore take 230 s. Kafka's producers time out after
`request.timeout.ms`, 30 s. A larger rate closes the connections of producers behind slow lines.
With a smaller rate, any client can occupy memory for longer.
"""

MEMORY_CHECK_MS = 5_000
MEMORY_PROGRESS_BYTES_MIN = MIB
"""Number of bytes of a request that must arrive within 5 s while other connections wait for request
memory. For a request below 8 MiB, the number is an eighth of the request.

If connections are slower, those with the largest requests are closed. With a smaller value, memory
is released later. With a larger value, producers behind slow lines lose their connections while the
broker is busy.
"""

RESPONSE_MEMORY_BYTES_MAX = 128 * MIB
"""Maximum size in bytes, over all connections, of encoded responses that clients have not read yet.
Data that is sent directly from files does not count. With a smaller limit, slow readers of large
responses lose their connections sooner. With a larger limit, they can use more memory."""

DECOMPRESSED_RECORD_BYTES_MAX = (1 << 31) - 9
"""Default and largest value of Kafka's setting `max.decompressed.message.bytes`, in bytes. It means
that the size of a record is not limited."""
DECOMPRESSED_BATCH_BYTES_MAX = 128 * MIB
"""Largest decompressed size of one batch, in bytes. A larger batch is refused as a decompression
bomb."""

USER_OPERATION_RECORDS_MAX = 10_000
"""Maximum number of metadata records that one user operation may write (KRaft's limit). A larger
operation is refused with POLICY_VIOLATION."""

METADATA_BATCH_BYTES_MAX = 8 * MIB
"""Maximum size in bytes of one batch of the metadata log. Every batch must fit into one gRPC
message."""

RPC_MESSAGE_BYTES_MAX = 64 * MIB
"""Maximum size in bytes of a gRPC message between nodes, in either direction."""

PRODUCER_ID_BLOCK_COUNT = 1_000
"""Number of producer ids that the controller assigns to a broker in response to one request
(KIP-730)."""

PRODUCER_BATCHES_KEPT = 5
"""Number of latest batches of each producer that a log stores to detect duplicates. A producer may
have this many batches in flight."""

PRODUCERS_PER_LOG_MAX = 10_000
"""Maximum number of idempotent producers that one log stores. With a smaller number, a client that
invents producer ids can cause a producer to be evicted between two attempts. With a larger number,
segment rolls and evictions block the event loop for longer."""

PRODUCERS_PER_LOG_SURE = 64
"""Number of idempotent producers that each log may store, even if `PRODUCERS_MAX` is exceeded."""

PRODUCERS_MAX = 250_000
"""Maximum number of idempotent producers that all logs of a broker store together, at 0.6 to 1.6 KB
each. With a smaller number, brokers with many partitions evict producers early. With a larger
number, one client can use more memory."""

assert TOPIC_NAME_LENGTH_MAX + len("-2147483647") < 4096
assert METADATA_BATCH_BYTES_MAX < RPC_MESSAGE_BYTES_MAX
assert WRITE_BACKLOG_BYTES_MAX < RESPONSE_MEMORY_BYTES_MAX
assert FRAMES_PER_TURN_MAX <= REQUESTS_IN_FLIGHT_MAX
