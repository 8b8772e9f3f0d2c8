"""ApiVersions: returns the versions that this node supports, to clients of any version.

Pure. The response to an unknown version is in version 0, with error 35 and only the row of
ApiVersions itself. The client uses this row to choose the version of its next attempt (KIP-511).
"""

import re
from collections.abc import Callable, Iterable

from ottla.metadata.features import OFFERED, LevelRange
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.network.dispatch import RequestContext
from ottla.wire.apis import API, API_VERSIONS
from ottla.wire.headers import TRACE_CONTEXT_FEATURE
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

CLIENT_NAMED_FROM = 3
"""First version of ApiVersions in which a client reports the name and version of its software."""

ZERO_MINIMUMS_FROM = 4
"""First version of ApiVersions whose clients accept features with a minimum level of 0
(KAFKA-17011)."""

TRACE_CONTEXT_LEVELS = LevelRange(1, 1)
"""Range of supported levels of the trace context feature, which has only one level; see
`wire/headers`. Controllers do not know the feature, so that it is not finalised."""

SOFTWARE_CHARS_MAX = 256
"""Maximum number of characters of a client's software name and version that are stored while its
connection is open. A request may contain megabytes; real names are shorter."""

LEGAL_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


ANY_NODE = -1
"""Node id that a client sends in an ApiVersions request if it expects no particular node. Clients
name both a cluster and a node, or neither."""


class ApiVersionsApi:
    """Handler of ApiVersions, versions 0 to 5, and of later, unsupported versions.

    `served` returns the API keys to list. It must include all keys from the broker's start, because
    clients store the first response on a connection. Client telemetry is an exception: it is listed
    only while `offers_telemetry` returns True, and clients notice a change with their next
    connection. A broker that traces requests also supports TRACE_CONTEXT_FEATURE.
    """

    def __init__(
        self,
        *,
        metadata: MetadataCache,
        served: Callable[[], Iterable[int]],
        cluster_id: str,
        node_id: NodeId,
        offers_telemetry: Callable[[], bool],
        reads_trace_contexts: bool = False,
    ) -> None:
        self._offers_telemetry = offers_telemetry
        self._supported = dict(OFFERED)
        if reads_trace_contexts:
            self._supported[TRACE_CONTEXT_FEATURE] = TRACE_CONTEXT_LEVELS
        self._metadata = metadata
        self._served = served
        self._cluster_id = cluster_id
        self._node_id = node_id

    def handle(self, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        """Return the response to ApiVersions: the API versions and features that this broker
        supports."""
        version = context.api_version
        if version >= CLIENT_NAMED_FROM and not _has_valid_software_name(request):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if (request.cluster_id is None) != (request.node_id == ANY_NODE):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if self._is_for_other_node(request):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        if version >= CLIENT_NAMED_FROM:
            context.peer.software_name = request.client_software_name[:SOFTWARE_CHARS_MAX]
            context.peer.software_version = request.client_software_version[:SOFTWARE_CHARS_MAX]
        image = self._metadata.image
        served = frozenset(self._served())
        if self._offers_telemetry():
            context.peer.was_offered_telemetry = True
        else:
            served = frozenset(key for key in served if not API[key].is_optional)
        return ApiVersionsResponse(
            api_keys=[row for key in sorted(served) for row in _rows_of(key)],
            supported_features=[
                SupportedFeatureKey(
                    name=name, min_version=levels.lowest, max_version=levels.highest
                )
                for name, levels in sorted(self._supported.items())
                if levels.lowest > 0 or version >= ZERO_MINIMUMS_FROM
            ],
            finalized_features_epoch=image.provenance.offset,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in image.features.items()
                if level > 0
            ],
        )

    def handle_unsupported(self, context: RequestContext, request: object) -> None:
        """Answer an ApiVersions request of an unsupported version, with a response of version 0."""
        context.complete_as(
            ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=list(_rows_of(API_VERSIONS))
            ),
            0,
        )

    def _is_for_other_node(self, request: ApiVersionsRequest) -> bool:
        """Return True if the ApiVersions request names another cluster or node than this one
        (KIP-1242)."""
        if request.cluster_id is None:
            return False
        return (request.cluster_id, request.node_id) != (self._cluster_id, self._node_id)


def _rows_of(key: int) -> Iterable[ApiVersion]:
    """Yield the range of supported versions of one API for the ApiVersions response. Yields nothing
    if the API is not listed."""
    versions = API[key].advertised
    if versions:
        yield ApiVersion(api_key=key, min_version=versions[0], max_version=versions[-1])


def _has_valid_software_name(request: ApiVersionsRequest) -> bool:
    return bool(
        LEGAL_SOFTWARE_NAME.fullmatch(request.client_software_name)
        and LEGAL_SOFTWARE_NAME.fullmatch(request.client_software_version)
    )
