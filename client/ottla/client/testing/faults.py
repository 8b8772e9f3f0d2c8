"""Faults that a test injects into a cluster, and their counters. Pure."""


class LostAnswers:
    """Injected fault: lost responses of one API. Created by `ClusterUnderTest.lose_answers`."""

    __slots__ = ("api", "left", "lost")

    def __init__(self, api: str, count: int) -> None:
        self.api = api
        """Name of the API, as in Kafka's protocol."""
        self.left = count
        """Number of further responses to lose."""
        self.lost = 0
        """Number of responses that were lost."""

    def take(self) -> bool:
        """Return True, and count the response, if the next response of the API must be lost."""
        if not self.left:
            return False
        self.left -= 1
        self.lost += 1
        return True


__all__ = ["LostAnswers"]
