"""UnregisterControllerRequest.

Generated from schemas/unregister_controller.schema; never edited.
"""

from ottla.wire.codec_types import Message


class UnregisterControllerRequest(Message):
    __slots__ = ("controller_id",)
    API_KEY = 94
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "unregister_controller"

    def __init__(
        self,
        *,
        controller_id: int = 0,
    ) -> None:
        self.controller_id = controller_id
