"""Scheduling of TLS handshakes: a share of the loop for all of them, and a deadline for each."""

from ottla.node.network.tls.handshakes import (
    BURST_MS,
    HANDSHAKE_MS_MAX,
    LOOP_SHARE,
    Handshakes,
    failure_sentence,
)

MS = 1_000_000


def steps(handshakes: Handshakes[str], now_ms: int, step_ns: int) -> list[str]:
    found = []
    for name in handshakes.turn(now_ms):
        found.append(name)
        handshakes.spend(step_ns, now_ms)
    return found


def test_handshakes_are_served_in_the_order_in_which_their_clients_spoke() -> None:
    handshakes: Handshakes[str] = Handshakes(0)
    for name in "abc":
        handshakes.begin(name, 0)
    for name in "bab":
        handshakes.queue(name)
    handshakes.queue("who has not connected")
    assert steps(handshakes, 0, MS) == ["b", "a"]
    assert not handshakes.queued
    assert len(handshakes) == 3


def test_all_handshakes_together_use_at_most_their_share_of_the_loop() -> None:
    handshakes: Handshakes[str] = Handshakes(0)
    names = [str(number) for number in range(10_000)]
    for name in names:
        handshakes.begin(name, 0)
        handshakes.queue(name)
    seconds = 4
    done = []
    for now_ms in range(seconds * 1_000):
        done += steps(handshakes, now_ms, 15 * MS)
    assert done == names[: len(done)]
    used_ms = 15 * len(done)
    saved_ms = BURST_MS * LOOP_SHARE
    assert abs(used_ms - saved_ms - seconds * 1_000 * LOOP_SHARE) <= 2 * 15
    assert handshakes.queued
    assert handshakes.wait_ms(seconds * 1_000) <= 31


def test_a_handshake_that_takes_too_long_is_named_once() -> None:
    handshakes: Handshakes[str] = Handshakes(0)
    assert handshakes.begin("a", 0) == HANDSHAKE_MS_MAX
    assert handshakes.begin("b", 5) is None
    assert handshakes.begin("c", 7) is None
    handshakes.end("b")
    handshakes.end("b")
    assert handshakes.overdue(HANDSHAKE_MS_MAX) == (["a"], HANDSHAKE_MS_MAX + 7)
    assert handshakes.overdue(HANDSHAKE_MS_MAX + 7) == (["c"], None)
    assert len(handshakes) == 0
    # With none left it is asked for again by the next one.
    assert handshakes.begin("d", 90_000) == 90_000 + HANDSHAKE_MS_MAX


def test_one_that_ended_keeps_the_watch_until_it_is_asked_for() -> None:
    handshakes: Handshakes[str] = Handshakes(0)
    handshakes.begin("a", 0)
    handshakes.end("a")
    assert handshakes.begin("b", 10) is None
    assert handshakes.overdue(HANDSHAKE_MS_MAX) == ([], HANDSHAKE_MS_MAX + 10)


def test_a_failure_is_said_in_words_for_who_has_to_mend_it() -> None:
    assert "does not speak TLS" in failure_sentence("WRONG_VERSION_NUMBER", None)
    assert failure_sentence("CERTIFICATE_VERIFY_FAILED", "certificate has expired") == (
        "the client's certificate is not accepted: certificate has expired"
    )
    assert failure_sentence("BAD_RECORD_TYPE", None) == "bad record type"
    assert failure_sentence(None, None) == "not understood"
