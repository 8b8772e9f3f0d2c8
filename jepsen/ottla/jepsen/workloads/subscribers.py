"""Which threads share a group, and by which protocol.

Pure.
"""

from typing import Final

GROUP_SIZE = 4
"""Members of one group: each change of one of them may stop all."""
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


def group_of(prefix: str, thread: int) -> str:
    """Return the group whose member a thread is when it subscribes."""
    return f"{prefix}readers-{thread // GROUP_SIZE}"


def protocol_of(thread: int) -> str:
    """Return `group.protocol` of that group: by turns the classic one and KIP-848's."""
    return CONSUMER if thread // GROUP_SIZE % 2 else CLASSIC
