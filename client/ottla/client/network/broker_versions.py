"""The ApiVersions response of a broker: its versions of each API, and its features.  Pure.

Version 3 of ApiVersions is requested first, and version 0 if the broker does not support that.
"""

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.version import VERSION
from ottla.wire import apis, codec, headers
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse

VERSIONS_ASKED = (3, 0)
"""Versions of ApiVersions in the order in which they are tried."""


def versions_request(version: int) -> bytes:
    """React to the loss of the connection, or to a failure to open it."""
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=VERSION)
    return codec.encode(request, version)


class BrokerVersions:
    """The API versions and features of one broker. Empty until its ApiVersions response is
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
        """Keys of the APIs that the broker lists."""
        return frozenset(self._versions)

    def is_of_controller(self, api_key: int) -> bool:
        """Return whether an API is missing because the peer is a controller, which serves no
        Metadata requests."""
        known = self._versions
        return bool(known) and apis.METADATA not in known and api_key not in known

    def version_of(self, api_key: int, address: str) -> int:
        """Return the highest version of an API that both the client and the broker support.

        Raises RefusedError if there is none.
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
        """Return the finalized level of a feature.  0 if the broker does not report it."""
        return self._features.get(name, 0)


def read_versions(version: int, body: memoryview) -> BrokerVersions | None:
    """Decode an ApiVersions response. Returns None if the broker does not support this version, so
    that the next one of `VERSIONS_ASKED` has to be requested."""
    # A response with code 35 has the layout of version 0, whichever version was requested.
    is_refused = body[:2] == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
    if version and is_refused:
        return None
    return BrokerVersions(codec.decode(ApiVersionsResponse, version, body))
