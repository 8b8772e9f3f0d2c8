"""The persister for tests follows the rules of the coordinator that callers rely on."""

from uuid import UUID

from ottla.broker.coordinators.share_persister import (
    SharePartitionKey,
    SharePersister,
    ShareState,
    StateBatch,
)
from ottla.model.errors import ErrorCode
from tests.broker.share_state.memory_share_persister import MemorySharePersister

KEY = SharePartitionKey("g", UUID("00112233-4455-6677-8899-aabbccddeeff"), 3)


def test_the_key_is_kafkas_text_with_the_topic_id_in_base64() -> None:
    assert KEY.text == "g:ABEiM0RVZneImaq7zN3u_w:3"


def test_a_write_is_read_back_by_the_next_leader_which_fences_the_last() -> None:
    memory = MemorySharePersister()
    persister: SharePersister = memory
    codes: list[ErrorCode] = []
    states: list[ShareState] = []

    def write(leader_epoch: int) -> None:
        persister.write(
            KEY,
            state_epoch=1,
            leader_epoch=leader_epoch,
            start_offset=5,
            delivery_complete_count=1,
            batches=[StateBatch(6, 6, 2, 1)],
            on_done=codes.append,
        )

    write(0)
    persister.initialize(KEY, state_epoch=1, start_offset=-1, on_done=codes.append)
    write(0)
    persister.read(KEY, leader_epoch=1, on_done=states.append)
    write(0)
    assert codes == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
    ]
    assert states == [ShareState(ErrorCode.NONE, 1, 5, 1, (StateBatch(6, 6, 2, 1),))]


def test_a_repeated_initialize_keeps_progress_and_a_higher_epoch_resets_it() -> None:
    memory = MemorySharePersister()
    codes: list[ErrorCode] = []
    memory.initialize(KEY, state_epoch=1, start_offset=0, on_done=codes.append)
    memory.write(
        KEY,
        state_epoch=1,
        leader_epoch=0,
        start_offset=9,
        delivery_complete_count=0,
        batches=(),
        on_done=codes.append,
    )
    memory.initialize(KEY, state_epoch=1, start_offset=0, on_done=codes.append)
    assert memory.states[KEY].start_offset == 9
    memory.initialize(KEY, state_epoch=2, start_offset=0, on_done=codes.append)
    assert memory.states[KEY].start_offset == 0
    assert set(codes) == {ErrorCode.NONE}


def test_a_held_answer_waits_and_a_planned_failure_has_no_effect() -> None:
    memory = MemorySharePersister()
    codes: list[ErrorCode] = []
    memory.failures.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    memory.initialize(KEY, state_epoch=1, start_offset=0, on_done=codes.append)
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not memory.states
    memory.is_held = True
    memory.initialize(KEY, state_epoch=1, start_offset=0, on_done=codes.append)
    assert (len(codes), memory.held_count) == (1, 1)
    memory.release()
    assert codes[1:] == [ErrorCode.NONE]
