"""The consumer group of each thread, and its group protocol.

The module is pure.
"""

from typing import Final

GROUP_SIZE = 4
"""Number of members of one consumer group of a workload. A rebalance that one member causes may
stop all of them."""
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


def group_of(prefix: str, thread: int) -> str:
    """Return the id of the consumer group that a thread joins when it subscribes."""
    return f"{prefix}readers-{thread // GROUP_SIZE}"


def protocol_of(thread: int) -> str:
    """Return the value of `group.protocol` for the thread's group: alternately the classic protocol
    and KIP-848's protocol."""
    return CONSUMER if thread // GROUP_SIZE % 2 else CLASSIC
