"""The asyncio clients have every method of the trio clients, with the same names and arguments."""

import inspect
from typing import Any

import pytest

import ottla.client
from ottla.client import (
    Admin,
    Consumer,
    Delivery,
    PendingAcknowledgement,
    PendingCommit,
    Producer,
    ProducerTransaction,
    SentRecords,
    ShareBatch,
    ShareConsumer,
    ShareRecord,
    aio,
)

PAIRS = [
    (Producer, aio.AioProducer),
    (ProducerTransaction, aio.AioTransaction),
    (Delivery, aio.AioDelivery),
    (SentRecords, aio.AioSentRecords),
    (Consumer, aio.AioConsumer),
    (PendingCommit, aio.AioPendingCommit),
    (Admin, aio.AioAdmin),
    (ShareConsumer, aio.AioShareConsumer),
    (ShareRecord, aio.AioShareRecord),
    (ShareBatch, aio.AioShareBatch),
    (PendingAcknowledgement, aio.AioPendingAcknowledgement),
]
CALLBACKS = {"cluster", "watch", "when_settled"}
"""Callbacks, for which asyncio has tasks, and the trio loop's view of the cluster."""


def public(kind: type) -> dict[str, Any]:
    return {
        name: inspect.getattr_static(kind, name)
        for name in dir(kind)
        if not name.startswith("_") and name not in CALLBACKS
    }


def arguments(function: Any) -> list[tuple[str, Any, Any]]:
    own = inspect.signature(function, follow_wrapped=True).parameters.values()
    return [(one.name, one.kind, one.default) for one in own]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_have_the_same_names_and_arguments(ours: type, theirs: type) -> None:
    found, expected = public(theirs), public(ours)
    assert found.keys() == expected.keys()
    for name, member in expected.items():
        if inspect.isfunction(member):
            # Without the first, which is the client itself.
            assert arguments(found[name])[1:] == arguments(member)[1:], name


def test_every_function_that_waits_is_there_for_asyncio() -> None:
    names = [name for name in ottla.client.__all__ if name.startswith(("open_", "complete_"))]
    openers = {"open_admin", "open_consumer", "open_producer", "open_share_consumer"}
    assert set(names) == {"complete_transactions", *openers}
    for name in names:
        assert name in aio.__all__
        assert arguments(getattr(aio, name)) == arguments(getattr(ottla.client, name)), name
