"""The ApiVersions response of a broker: the versions of each API that it supports, and its
features. Pure.

A client that knows which broker it expects requests version 5 of ApiVersions. This version names
the expected broker, so that a broker with another id, or of another cluster, refuses the connection
(KIP-1242). Other clients request version 3. A broker that does not support the requested version
responds with the versions that it supports, and the client requests one of these next (KIP-511).
"""

from typing import NamedTuple

from ottla.model.errors import ErrorCode, RefusedError, row_of
from ottla.model.ids import NodeId
from ottla.model.version import VERSION
from ottla.wire import apis, codec, headers
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse

NODE_NAMED_FROM = 5
"""First version of ApiVersions whose request names the broker that the client expects."""
VERSION_OTHERWISE = 3
"""Version of ApiVersions that a client requests first if it does not know which broker to expect.
All brokers since Kafka 2.4 support it, so that no second request is needed."""


OWN_FEATURES = "ottla."
"""Start of the names of features that only brokers of Ottla list."""
OWN_FEATURES_FROM = 4
"""First version of ApiVersions whose responses contain Ottla's own features. Responses of earlier
versions omit features whose lowest level is 0 (KAFKA-17011)."""


class ExpectedNode(NamedTuple):
    """Cluster id and node id of the broker that a client expects at an address."""

    cluster_id: str
    node_id: NodeId


def first_version(expected: ExpectedNode | None) -> int:
    """Return the version of ApiVersions to request first."""
    return VERSION_OTHERWISE if expected is None else NODE_NAMED_FROM


def versions_request(version: int, expected: ExpectedNode | None = None) -> bytes:
    """Return the body of an ApiVersions request. Only versions from 5 on can name the expected
    broker."""
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=VERSION)
    if expected is not None:
        request.cluster_id, request.node_id = expected
    return codec.encode(request, version)


class BrokerVersions:
    """API versions and features that one broker supports. Empty until its ApiVersions response is
    decoded."""

    __slots__ = ("_features", "_versions", "reads_trace_contexts")

    def __init__(self, answer: ApiVersionsResponse | None = None) -> None:
        answer = answer or ApiVersionsResponse()
        self._versions = {
            row.api_key: (row.min_version, row.max_version) for row in answer.api_keys
        }
        self._features = {row.name: row.max_version_level for row in answer.finalized_features}
        self.reads_trace_contexts = any(
            row.name == headers.TRACE_CONTEXT_FEATURE for row in answer.supported_features
        )
        """True if the broker accepts a `traceparent` in request headers."""

    @property
    def api_keys(self) -> frozenset[int]:
        """Keys of the APIs that the broker supports."""
        return frozenset(self._versions)

    def is_of_controller(self, api_key: int) -> bool:
        """Return True if the broker lacks an API because it is a controller. Controllers do not
        serve Metadata requests."""
        known = self._versions
        return bool(known) and apis.METADATA not in known and api_key not in known

    def version_of(self, api_key: int, address: str) -> int:
        """Return the highest version of an API that both the client and the broker support.

        Raises RefusedError if they have no version in common.
        """
        api = apis.API[api_key]
        lowest, highest = self._versions.get(api_key, (1, 0))
        # Ottla's own admin messages are not listed in ApiVersions and have one version.
        version = 0 if api.is_own else min(highest, api.latest_stable)
        if not api.is_own and version < max(lowest, api.lowest):
            raise RefusedError(
                ErrorCode.UNSUPPORTED_VERSION, f"the broker at {address} has no {api.name}"
            )
        return version

    def feature_level(self, name: str) -> int:
        """Return the finalized level of a feature, or 0 if the broker does not report the
        feature."""
        return self._features.get(name, 0)


def read_versions(version: int, body: memoryview) -> BrokerVersions | int:
    """Decode an ApiVersions response. If the broker does not support the requested version, returns
    the version to request next.

    Raises RefusedError for any other error code, such as REBOOTSTRAP_REQUIRED from a broker other
    than the expected one.
    """
    # A response with code 35 has the layout of version 0, whichever version was requested.
    if version and body[:2] == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big"):
        return _next_version(version, codec.decode(ApiVersionsResponse, 0, body))
    answer = codec.decode(ApiVersionsResponse, version, body)
    if answer.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        row = row_of(answer.error_code)
        raise RefusedError(ErrorCode(row.code), row.meaning)
    return BrokerVersions(answer)


def _next_version(refused: int, answer: ApiVersionsResponse) -> int:
    """Return the highest version of ApiVersions that the broker lists below the refused version.

    Returns 0, which every broker supports, if the broker lists no version, as brokers before Kafka
    2.4 do.
    """
    for row in answer.api_keys:
        if row.api_key == apis.API_VERSIONS:
            found = min(row.max_version, refused - 1)
            return found if found >= max(row.min_version, 0) else 0
    return 0
