"""Output of `ottla status` for a broker that is not serving yet."""

from ottla.cli.cluster.status import recovery_text
from ottla.wire.messages.describe_node_response import RecoveringLogDir


def recovering(done: int, *, segments: int = 3) -> RecoveringLogDir:
    return RecoveringLogDir(
        log_dir="/data", remaining_segments=segments, bytes_total=1_000, bytes_done=done
    )


def test_the_time_that_is_left_follows_from_what_was_done_meanwhile() -> None:
    assert recovery_text(recovering(400), 300) == "recovered 40 %, 3 segments left, some 6 s"
    assert recovery_text(recovering(401), 1) == "recovered 40 %, 3 segments left, some 2 s"


def test_no_remaining_time_is_estimated_without_progress_or_remaining_work() -> None:
    assert recovery_text(recovering(400), 400) == "recovered 40 %, 3 segments left"
    assert recovery_text(recovering(1_000, segments=0), 900) == "recovered 100 %"
    assert recovery_text(recovering(1_100, segments=0), 900) == "recovered 100 %"
