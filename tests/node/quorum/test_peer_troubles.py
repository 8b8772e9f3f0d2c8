"""Warnings about peers that do not work with a member, and their frequency."""

import pytest

from ottla.jepsen.quorum.world import CLUSTER_ID, identity
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.node.quorum.peer_troubles import REPEAT_MS, SILENCE_MS, PeerTroubles

PEER = NodeId(2)


@pytest.fixture
def troubles() -> PeerTroubles:
    return PeerTroubles(lambda: identity(1, (1, 2, 3)))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, f"another cluster than this node's {CLUSTER_ID}"),
        (ErrorCode.INVALID_VOTER_KEY, "was wiped and may not vote; bring its old directory back"),
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "correct controller.quorum.bootstrap.servers or"),
        (ErrorCode.INCONSISTENT_VOTER_SET, "knows no voter 1 with this node's directory"),
    ],
)
def test_a_refusal_that_no_retry_cures_is_said_once_a_minute(
    troubles: PeerTroubles, error: ErrorCode, words: str
) -> None:
    said = [troubles.on_answer(PEER, error, now_ms) for now_ms in range(0, 2 * REPEAT_MS, 500)]

    warnings = [sentence for sentence in said if sentence is not None]
    assert len(warnings) == 2
    assert warnings[0].startswith("controller 2 at host-2:9093 ")
    assert words in warnings[0]
    assert troubles.problems == (warnings[0],)


def test_another_reason_is_said_at_once(troubles: PeerTroubles) -> None:
    troubles.on_answer(PEER, ErrorCode.INCONSISTENT_CLUSTER_ID, 0)

    assert troubles.on_answer(PEER, ErrorCode.INVALID_VOTER_KEY, 1) is not None
    assert len(troubles.problems) == 1


@pytest.mark.parametrize(
    "error", [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER]
)
def test_what_elections_bring_is_no_problem_and_ends_one(
    troubles: PeerTroubles, error: ErrorCode
) -> None:
    troubles.on_answer(PEER, ErrorCode.INVALID_VOTER_KEY, 0)

    assert troubles.on_answer(PEER, error, 1) is None
    assert troubles.problems == ()


def test_an_unreachable_peer_is_logged_after_a_delay_and_then_once_a_minute(
    troubles: PeerTroubles,
) -> None:
    end_ms = SILENCE_MS + REPEAT_MS
    said = [troubles.on_silence(PEER, "refused", now_ms) for now_ms in range(0, end_ms, 100)]

    warnings = [sentence for sentence in said if sentence is not None]
    assert warnings == ["controller 2 at host-2:9093 has not answered for 5 s (refused)"]
    assert troubles.problems == (), "DescribeQuorum shows its lag"


def test_an_answer_ends_the_silence(troubles: PeerTroubles) -> None:
    troubles.on_silence(PEER, "refused", 0)
    troubles.on_answer(PEER, ErrorCode.NONE, SILENCE_MS - 1)

    assert troubles.on_silence(PEER, "refused", SILENCE_MS + 1) is None
