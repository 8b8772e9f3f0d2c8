"""Latencies of a quorum, measured with a clock set by hand."""

from ottla.model.ids import Offset
from ottla.node.quorum.quorum_meter import UNCOMMITTED_MAX, WINDOW_MS, QuorumMeter, Recent
from ottla.raft.transitions import Role


def test_what_is_recent_is_of_this_window_and_the_one_before() -> None:
    recent = Recent(0)
    assert (recent.average(0), recent.maximum(0), recent.per_second(0)) == (0, 0, 0)
    for value in (10, 20):
        recent.note(value, 1_000)
    assert (recent.average(2_000), recent.maximum(2_000)) == (15, 20)
    assert recent.per_second(2_000) == 15

    at = WINDOW_MS
    recent.note(90, at)
    assert (recent.average(at), recent.maximum(at)) == (40, 90)
    assert recent.per_second(at + 10_000) == 120 / (at + 10_000) * 1_000

    at = 2 * WINDOW_MS
    assert (recent.average(at), recent.maximum(at)) == (90, 90), "the first two are forgotten"
    at = 5 * WINDOW_MS
    assert (recent.average(at), recent.maximum(at), recent.per_second(at)) == (0, 0, 0)


def test_a_commit_takes_from_the_append_until_the_high_watermark_has_passed_it() -> None:
    meter = QuorumMeter(0)
    meter.on_append(2, Offset(2), 100, is_leader=True)
    meter.on_append(3, Offset(5), 110, is_leader=True)
    meter.on_high_watermark(Offset(4), 130)
    assert (meter.commits_ms.average(130), meter.commits_ms.maximum(130)) == (30, 30)
    meter.on_high_watermark(Offset(5), 160)
    assert (meter.commits_ms.average(160), meter.commits_ms.maximum(160)) == (40, 50)
    assert meter.appended_records.per_second(160) == 5


def test_what_a_leader_of_old_appended_is_not_committed_by_it() -> None:
    meter = QuorumMeter(0)
    meter.on_append(1, Offset(1), 0, is_leader=True)
    meter.on_role(Role.FOLLOWER, knows_leader=True, now_ms=10)
    meter.on_append(4, Offset(5), 20, is_leader=False)
    meter.on_high_watermark(Offset(5), 30)
    assert meter.commits_ms.maximum(30) == 0
    assert (meter.appended_records.per_second(30), meter.fetched_records.per_second(30)) == (1, 4)


def test_an_election_lasts_from_standing_until_a_leader_is_known() -> None:
    meter = QuorumMeter(0)
    meter.on_role(Role.UNATTACHED, knows_leader=False, now_ms=0)
    meter.on_role(Role.PROSPECTIVE, knows_leader=False, now_ms=100)
    meter.on_role(Role.CANDIDATE, knows_leader=False, now_ms=150)
    meter.on_role(Role.UNATTACHED, knows_leader=False, now_ms=200)
    meter.on_role(Role.FOLLOWER, knows_leader=True, now_ms=400)
    meter.on_role(Role.FOLLOWER, knows_leader=True, now_ms=900)
    assert (meter.elections_ms.average(900), meter.elections_ms.maximum(900)) == (300, 300)


def test_a_leader_without_commits_remembers_a_bounded_number_of_appends() -> None:
    meter = QuorumMeter(0)
    for offset in range(UNCOMMITTED_MAX + 5):
        meter.on_append(1, Offset(offset + 1), 0, is_leader=True)
    meter.on_high_watermark(Offset(UNCOMMITTED_MAX + 5), 7)
    assert meter.commits_ms.average(7) == 7
    assert len(meter._uncommitted) == 0
