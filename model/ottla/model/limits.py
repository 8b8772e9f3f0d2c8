"""Bounds of the house that are no settings, and the relations between them.

A number that an operator may change is a setting (`settings/`); what stands here is fixed by a
format or protects the process.  Relations are asserted at import.
"""

from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

INT16_MAX: Final = (1 << 15) - 1
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1

TOPIC_NAME_LENGTH_MAX = 249
"""Longest topic name: with `-`, ten digits of partition and a suffix it is still a file name."""

BATCH_HEADER_BYTES: Final = 61
"""Size of the v2 record batch header, from base offset to record count (KIP-98)."""

FRAME_LENGTH_BYTES: Final = 4
"""Size of the length in front of every request and response."""

FRAMES_PER_TURN_MAX = 32
"""Requests of one connection served before the others get their turn.  Higher favours a busy
client's throughput, lower its neighbours' latency."""

TURN_NS_MAX = 5_000_000
"""How long a turn may hold the loop before trio's other tasks run, give or take one request.  Lower
keeps heartbeats punctual under load, higher wastes less on switching."""

REQUESTS_IN_FLIGHT_MAX = 64
"""Requests of one connection that may wait for an answer; more are left unread in the socket."""

WRITE_BACKLOG_BYTES_MAX = 8 * MIB
"""Answer bytes one connection may have waiting before it is read no further."""

FRAME_GRACE_MS = 30_000
FRAME_BYTES_PER_SECOND_MIN = 512 * KIB
"""How long a request may take to arrive once it has begun: 30 s, and 2 s for each MiB it announces
(100 MiB: 230 s).  Kafka's producers give up after `request.timeout.ms`, 30 s.  A faster rate cuts
off producers behind slow lines, a slower one lets a stranger hold memory for longer."""

MEMORY_CHECK_MS = 5_000
MEMORY_PROGRESS_BYTES_MIN = MIB
"""While connections wait for request memory, those that hold some have to bring a MiB in 5 s (of a
small request an eighth) or be taken up; the largest of the others are closed.  Less gives the
memory back later, more cuts off producers behind slow lines just when a broker is busy."""

RESPONSE_MEMORY_BYTES_MAX = 128 * MIB
"""Encoded answers that clients have not read yet, over all connections; file slices do not count.
Lower cuts off slow readers of large answers sooner, higher lets them take more memory."""

DECOMPRESSED_BATCH_BYTES_MAX = 128 * MIB
"""What one compressed batch may unpack to before it is refused as a bomb."""

USER_OPERATION_RECORDS_MAX = 10_000
"""Metadata records one user operation may write (KRaft's bound); more is POLICY_VIOLATION."""

METADATA_BATCH_BYTES_MAX = 8 * MIB
"""Largest batch of the metadata log; a gRPC message must hold one."""

RPC_MESSAGE_BYTES_MAX = 64 * MIB
"""Largest gRPC message between nodes, either way."""

PRODUCER_ID_BLOCK_COUNT = 1_000
"""Producer ids a broker gets from the controller at once (KIP-730)."""

PRODUCER_BATCHES_KEPT = 5
"""Batches remembered per producer for duplicates: a client may have this many in flight."""

PRODUCERS_PER_LOG_MAX = 10_000
"""Producers that one log remembers.  Smaller lets a stranger who invents ids push out one that is
between two tries; larger lets a roll and an eviction hold the loop for longer."""

PRODUCERS_PER_LOG_SURE = 64
"""Producers that a log may remember however many the others do."""

PRODUCERS_MAX = 250_000
"""Producers that all logs of a broker remember together, at 0.6 to 1.6 KB each.  Smaller forgets
producers of many partitions early, larger lets a stranger take more memory."""

assert TOPIC_NAME_LENGTH_MAX + len("-2147483647") < 4096
assert METADATA_BATCH_BYTES_MAX < RPC_MESSAGE_BYTES_MAX
assert WRITE_BACKLOG_BYTES_MAX < RESPONSE_MEMORY_BYTES_MAX
assert FRAMES_PER_TURN_MAX <= REQUESTS_IN_FLIGHT_MAX
