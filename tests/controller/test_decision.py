"""Content of a decision: records, the image after them, and a response."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from ottla.controller.decision import Draft, decided
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata import fold
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import Record, config_record, partition_change_record
from ottla.model.errors import CorruptDataError
from ottla.model.ids import NodeId

FIRST, SECOND = (config_record(4, "", key, "v") for key in ("k", "l"))


def test_parts_of_a_draft_build_on_the_image_of_those_before_them() -> None:
    start = InMemoryController().image
    draft = Draft(start)
    draft.add([FIRST])
    assert draft.image.config(4, "")["k"] == "v"
    draft.add(iter([SECOND]))
    decision = draft.decision("done", is_atomic=True)
    assert (decision.records, decision.reply, decision.is_atomic) == (
        (FIRST, SECOND),
        "done",
        True,
    )
    assert decision.image == fold.apply_all(start, decision.records)


def test_the_parts_of_a_draft_are_folded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for many topics makes one image, not one a topic."""
    folded: list[int] = []
    original = fold.apply_all

    def counting(image: MetadataImage, records: Sequence[Record]) -> MetadataImage:
        folded.append(len(records))
        return original(image, records)

    monkeypatch.setattr(fold, "apply_all", counting)
    draft = Draft(InMemoryController().image)
    folded.clear()
    for _ in range(5):
        draft.add([FIRST, SECOND])
    draft.decision(None)
    assert folded == [10]


def test_another_reply_leaves_records_and_image_as_they_are() -> None:
    decision = decided(InMemoryController().image, [FIRST], None, is_atomic=True)
    other = decision.with_reply(7)
    assert other.reply == 7
    assert other.image is decision.image
    assert (other.records, other.is_atomic) == (decision.records, True)


def test_records_that_do_not_fit_the_image_make_no_decision() -> None:
    stray = partition_change_record(UUID(int=5), 0, isr=(NodeId(1),))
    with pytest.raises(CorruptDataError):
        decided(InMemoryController().image, [FIRST, stray], None)


def test_a_decision_that_carries_another_image_than_its_records_come_to_is_found() -> None:
    cluster = InMemoryController()
    false = replace(decided(cluster.image, [FIRST], None), image=cluster.image)
    with pytest.raises(AssertionError):
        cluster.take(false)
