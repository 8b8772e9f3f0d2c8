"""DrainBrokerRequest.

Generated from schemas/drain_broker.schema; never edited.
"""

from ottla.wire.codec_types import Message


class DrainBrokerRequest(Message):
    __slots__ = ("undo",)
    API_KEY = 20001
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "drain_broker"

    def __init__(
        self,
        *,
        undo: bool = False,
    ) -> None:
        self.undo = undo
