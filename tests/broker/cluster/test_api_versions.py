"""ApiVersions: the versions and features that a broker announces to each kind of client."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.headers import encode_request_header, frame
from ottla.wire.messages.api_versions_request import ApiVersionsRequest

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]


@pytest.mark.parametrize("version", range(6))
async def test_every_version_of_api_versions_lists_what_is_served_and_what_is_coming(
    new_client: NewClient, version: int
) -> None:
    answer = await new_client().ask(
        ApiVersionsRequest(client_software_name="t", client_software_version="1.0"), version
    )
    rows = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert answer.error_code == 0
    assert rows[0] == (0, 13)  # librdkafka wants to see the oldest Produce (KAFKA-18659)
    assert rows[3] == (0, 13)
    assert rows[18] == (0, 5)
    assert not rows.keys() & {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 71, 72, 73, 82, 20000}
    if version >= 3:
        finalized = {f.name: f.max_version_level for f in answer.finalized_features}
        assert finalized == {"metadata.version": 30, "kraft.version": 1}
        assert answer.finalized_features_epoch == 77
        lowest = {f.name: f.min_version for f in answer.supported_features}
        assert lowest["metadata.version"] == 30
        assert (0 in lowest.values()) == (version >= 4)


async def test_an_unknown_version_of_api_versions_is_answered_with_the_supported_versions(
    new_client: NewClient,
) -> None:
    client = new_client()
    header = encode_request_header(18, 3, 1, "test")
    data = bytearray(b"".join(frame([header + b"anything at all"])))  # type: ignore[arg-type]
    data[6:8] = (99).to_bytes(2, "big")
    client.connection.on_bytes(memoryview(data), 0)
    answer = client.take_answer(ApiVersionsRequest(), 99)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.max_version) for row in answer.api_keys] == [(18, 5)]


async def test_a_client_that_does_not_name_itself_properly_is_refused(
    new_client: NewClient,
) -> None:
    answer = await new_client().ask(ApiVersionsRequest(client_software_name="spaces no"), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, 0),
        ("ours", 1, 0),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("ours", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("ours", -2, ErrorCode.REBOOTSTRAP_REQUIRED),
        # Both are named or neither, as on Kafka 4.4.0.
        (None, 1, ErrorCode.INVALID_REQUEST),
        (None, 2, ErrorCode.INVALID_REQUEST),
        (None, -2, ErrorCode.INVALID_REQUEST),
        ("ours", -1, ErrorCode.INVALID_REQUEST),
        ("another", -1, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_client_that_wanted_another_cluster_or_node_must_bootstrap_again(
    new_client: NewClient, cluster_id: str | None, node_id: int, code: int
) -> None:
    client = new_client()
    request = ApiVersionsRequest(
        client_software_name="t",
        client_software_version="1",
        cluster_id=client.cluster_id if cluster_id == "ours" else cluster_id,
        node_id=node_id,
    )
    assert (await client.ask(request, 5)).error_code == code
