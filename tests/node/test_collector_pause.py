"""The collector of garbage rests while costly answers are made, and not for longer."""

import gc

import trio

from ottla.node.collector_pause_driver import PAUSE_S_MAX, CollectorPause


async def test_garbage_of_costly_requests_without_end_is_collected_from_time_to_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pause = CollectorPause()
    collected: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            collected.append(about["generation"])

    gc.callbacks.append(note)
    try:
        with pause.paused():
            for _ in range(5):
                await trio.sleep(PAUSE_S_MAX * 0.6)
                with pause.paused():
                    assert not gc.isenabled()
    finally:
        gc.callbacks.remove(note)
    assert collected == [1, 1]
    assert gc.isenabled()
