"""Counters of faults that a test injects into a cluster. Pure."""


class LostAnswers:
    """Responses of one API that a test cluster has to lose. `ClusterUnderTest.lose_answers` creates
    it."""

    __slots__ = ("api", "left", "lost")

    def __init__(self, api: str, count: int) -> None:
        self.api = api
        """Name of the API, as in Kafka's protocol."""
        self.left = count
        """Number of responses that are still to be lost."""
        self.lost = 0
        """Number of responses that were lost."""

    def take(self) -> bool:
        """Count a response. Returns True if the response has to be lost."""
        if not self.left:
            return False
        self.left -= 1
        self.lost += 1
        return True


__all__ = ["LostAnswers"]
