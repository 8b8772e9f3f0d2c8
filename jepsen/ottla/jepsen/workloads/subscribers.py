"""Which threads share a group.

Pure.
"""

GROUP_SIZE = 4
"""Members of one group: each change of one of them stops all."""


def group_of(prefix: str, thread: int) -> str:
    """Return the group whose member a thread is when it subscribes."""
    return f"{prefix}readers-{thread // GROUP_SIZE}"
