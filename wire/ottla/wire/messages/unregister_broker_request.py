"""UnregisterBrokerRequest.

Generated from schemas/unregister_broker.schema; never edited.
"""

from ottla.wire.codec_types import Message


class UnregisterBrokerRequest(Message):
    __slots__ = ("broker_id",)
    API_KEY = 64
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "unregister_broker"

    def __init__(
        self,
        *,
        broker_id: int = 0,
    ) -> None:
        self.broker_id = broker_id
