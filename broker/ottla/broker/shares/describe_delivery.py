"""DescribeShareDelivery (Ottla's own, key 20009): reasons why records of a share group are not
delivered now.

Pure. A broker answers for the share partitions that it leads and has in memory. Only records that
were read ahead are counted as delayed or in back-off.
"""

from collections.abc import Iterator

from ottla.broker.shares.delivery_window import DeliveryState
from ottla.broker.shares.led_share import LedShare
from ottla.broker.shares.share_delivery import ShareDelivery
from ottla.model.errors import ErrorCode
from ottla.model.security.acls import AclOperation, ResourceType
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.steps import Answer, StepPace, begun
from ottla.wire.messages.describe_share_delivery_request import DescribeShareDeliveryRequest
from ottla.wire.messages.describe_share_delivery_response import (
    DescribedShareDelivery,
    DescribeShareDeliveryResponse,
)

NEVER_MS = -1
"""Value in a DescribeShareDelivery response for a missing time: the records have no due time, or no
back-off."""
SPANS_PER_STEP = 1_000
"""Number of spans (ranges of records with equal state) of a delivery window that are counted in one
step. A larger value blocks the event loop longer."""


class DescribeShareDeliveryApi:
    """Handler of DescribeShareDelivery, version 0, which reports why records are not delivered
    now."""

    def __init__(self, delivery: ShareDelivery) -> None:
        self._delivery = delivery

    def handle(
        self, context: RequestContext, request: DescribeShareDeliveryRequest
    ) -> HandlerResult:
        """Answer the request with the share partitions that this broker leads and whose topics the
        client may describe."""
        code = self._delivery.refusal(request.group_id, "any")
        if code is not ErrorCode.NONE:
            return DescribeShareDeliveryResponse(error_code=code)
        return begun(self._serve(context, request.group_id))

    def _serve(self, context: RequestContext, group_id: str) -> Answer:
        response, pace = DescribeShareDeliveryResponse(), StepPace()
        for led in self._visible(context, group_id):
            if led.has_state:
                response.partitions.append(described(led))
                if pace.is_due(1 + len(led.share.window.spans) // SPANS_PER_STEP):
                    yield
        return response

    def _visible(self, context: RequestContext, group_id: str) -> Iterator[LedShare]:
        permissions = context.permissions
        for led in self._delivery.shares.of_group(group_id):
            topic = led.partition.topic
            if permissions is None or permissions.allows(
                AclOperation.DESCRIBE, ResourceType.TOPIC, topic, is_logged=False
            ):
                yield led


def described(led: LedShare) -> DescribedShareDelivery:
    """Return the DescribeShareDelivery entry for a share partition: the number of waiting records
    for each reason."""
    share, order = led.share, led.share.order
    row = DescribedShareDelivery(
        topic_name=led.partition.topic,
        partition_index=led.partition.index,
        acquired_count=share.count_in(DeliveryState.ACQUIRED),
        dead_letter_count=len(share.letters),
        is_spread=share.is_spread,
        next_due_ms=NEVER_MS,
        next_backoff_ms=NEVER_MS,
    )
    if order is None:
        row.ready_count = share.count_in(DeliveryState.AVAILABLE)
        return row
    figures, now = order.figures, led.now
    row.ready_count, row.key_count = figures.ready_count, figures.key_count
    row.delayed_count, row.backoff_count = figures.delayed_count, figures.backoff_count
    if figures.next_due_ms is not None:
        row.next_due_ms = figures.next_due_ms
    if figures.next_backoff_ms is not None:
        row.next_backoff_ms = figures.next_backoff_ms - now.mono_ms + now.wall_ms
    return row
