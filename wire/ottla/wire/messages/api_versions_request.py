"""ApiVersionsRequest.

Generated from schemas/api_versions.schema; never edited.
"""

from ottla.wire.codec_types import Message


class ApiVersionsRequest(Message):
    __slots__ = (
        "client_software_name",
        "client_software_version",
        "cluster_id",
        "node_id",
    )
    API_KEY = 18
    VERSIONS = range(6)
    FLEXIBLE_FROM = 3
    SCHEMA = "api_versions"

    def __init__(
        self,
        *,
        client_software_name: str = "",
        client_software_version: str = "",
        cluster_id: str | None = None,
        node_id: int = -1,
    ) -> None:
        self.client_software_name = client_software_name
        self.client_software_version = client_software_version
        self.cluster_id = cluster_id
        self.node_id = node_id
