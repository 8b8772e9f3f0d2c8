"""Delivery reports before they are awaited."""

import pytest

from ottla.client.aio_producer import AioDelivery
from ottla.client.produce.delivery import Delivery
from ottla.client.produce.partition_queue import ProducerBatch
from ottla.model.ids import TopicPartition


@pytest.mark.parametrize("kind", [Delivery, AioDelivery])
@pytest.mark.parametrize("name", ["topic", "partition", "offset", "timestamp_ms"])
def test_a_field_of_the_report_says_to_await_it(kind: type[object], name: str) -> None:
    batch = ProducerBatch(TopicPartition("t", 0), 0, 0)
    delivery = Delivery(batch, 0, 0) if kind is Delivery else kind.__new__(kind)

    with pytest.raises(AttributeError) as missing:
        getattr(delivery, name)
    assert str(missing.value).endswith(f"await the delivery first: (await delivery).{name}")
    with pytest.raises(AttributeError, match=r"has no attribute 'value'$"):
        getattr(delivery, "value")  # noqa: B009, since type checkers refuse the attribute
