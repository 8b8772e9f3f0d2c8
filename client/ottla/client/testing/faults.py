"""What a test's faults are counted by.  Pure."""


class LostAnswers:
    """Answers of one API that are to be lost; made by `lose_answers` of a cluster under test."""

    __slots__ = ("api", "left", "lost")

    def __init__(self, api: str, count: int) -> None:
        self.api = api
        """Name of the API, as in Kafka's protocol."""
        self.left = count
        """Number of answers that are still to be lost."""
        self.lost = 0
        """Number of answers that were lost."""

    def take(self) -> bool:
        """Count an answer; return whether it is lost."""
        if not self.left:
            return False
        self.left -= 1
        self.lost += 1
        return True


__all__ = ["LostAnswers"]
