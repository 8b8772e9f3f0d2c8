"""TailClientMetricsRequest.

Generated from schemas/tail_client_metrics.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class TailClientMetricsRequest(Message):
    __slots__ = (
        "cursor",
        "client",
        "max_bytes",
    )
    API_KEY = 20003
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "tail_client_metrics"

    def __init__(
        self,
        *,
        cursor: int = -1,
        client: str | None = None,
        max_bytes: int = 1048576,
    ) -> None:
        self.cursor = cursor
        self.client = client
        self.max_bytes = max_bytes
