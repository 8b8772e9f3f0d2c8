"""DescribeShareRecords (Ottla's own, key 20010): lists the unfinished records of one share
partition. Each entry has the member that has acquired the records, the end of the acquisition lock
and the number of deliveries.

Pure. The leader of the partition answers from memory. The number of ranges in a response is
limited. The next request begins at the response's `next_offset`.
"""

from itertools import islice

from ottla.broker.coordinators.effects import Instant
from ottla.broker.coordinators.share_persister import SharePartitionKey
from ottla.broker.shares.delivery_window import NO_DEADLINE_MS, DeliveryState, Span
from ottla.broker.shares.led_share import LedShare
from ottla.broker.shares.share_delivery import ShareDelivery
from ottla.model.errors import ErrorCode, RefusedError
from ottla.node.network.dispatch import RequestContext
from ottla.wire.messages.describe_share_records_request import DescribeShareRecordsRequest
from ottla.wire.messages.describe_share_records_response import (
    DescribedShareRange,
    DescribeShareRecordsResponse,
)

END = -1
"""Value of `next_offset` in a DescribeShareRecords response after which no records are left. It is
also the lock expiry that the response reports for records that no member has acquired."""
RANGE_COUNT_MAX = 1_000
"""Maximum number of ranges of records in a DescribeShareRecords response, of 60 to 100 bytes each.
A larger value blocks the event loop longer. A smaller value needs more requests for a partition
with many ranges."""
SPANS_MAX = 10_000
"""Maximum number of spans (ranges of records with equal state) in the delivery window that one
request examines. With a larger value, the event loop is blocked for longer than 2 ms. With a
smaller value, a window with many acknowledged spans needs more requests."""


class DescribeShareRecordsApi:
    """Handler of DescribeShareRecords, version 0, which reports the unsettled records of a share
    partition."""

    def __init__(self, delivery: ShareDelivery) -> None:
        self._delivery = delivery

    def handle(
        self, context: RequestContext, request: DescribeShareRecordsRequest
    ) -> DescribeShareRecordsResponse:
        """Answer the request with ranges of unsettled records (neither acknowledged nor archived),
        from the requested offset on. The response is empty if no member of the group fetches the
        partition."""
        code = self._delivery.refusal(request.group_id, "any")
        if code is ErrorCode.NONE and (request.start_offset < 0 or request.range_count_max < 1):
            code = ErrorCode.INVALID_REQUEST
        if code is not ErrorCode.NONE:
            return DescribeShareRecordsResponse(error_code=code, next_offset=END)
        try:
            partition = self._delivery.table.find(request.topic_name, request.partition_index)
            partition.leader_log()
        except RefusedError as refusal:
            return DescribeShareRecordsResponse(error_code=refusal.code, next_offset=END)
        led = self._delivery.shares.get(
            SharePartitionKey(request.group_id, partition.topic_id, partition.index)
        )
        if led is None or not led.has_state:
            return DescribeShareRecordsResponse(next_offset=END)
        return described(
            led,
            request.start_offset,
            range_count_max=min(request.range_count_max, RANGE_COUNT_MAX),
            has_waiting=request.has_waiting,
        )


def described(
    led: LedShare, start_offset: int, *, range_count_max: int, has_waiting: bool
) -> DescribeShareRecordsResponse:
    """Return a DescribeShareRecords response with the unsettled records of a share partition from
    an offset on. With `has_waiting`, the response includes records that no member has acquired and
    that need no dead letter."""
    window, now = led.share.window, led.now
    response = DescribeShareRecordsResponse(next_offset=END)
    at = max(0, window.index_of(start_offset))
    for span in islice(window.spans, at, at + SPANS_MAX):
        response.next_offset = span.first
        if len(response.ranges) == range_count_max:
            return response
        if span.last >= start_offset and _is_shown(span, has_waiting=has_waiting):
            response.ranges.append(_range_of(span, max(span.first, start_offset), now))
        response.next_offset = span.last + 1
    if response.next_offset >= window.end_offset:
        response.next_offset = END
    return response


def _is_shown(span: Span, *, has_waiting: bool) -> bool:
    if span.transition is not None:
        return True
    if span.state == DeliveryState.AVAILABLE:
        return has_waiting
    return not span.is_settled


def _range_of(span: Span, first_offset: int, now: Instant) -> DescribedShareRange:
    lock_end_ms = END
    if span.deadline_ms != NO_DEADLINE_MS:
        lock_end_ms = span.deadline_ms - now.mono_ms + now.wall_ms
    return DescribedShareRange(
        first_offset=first_offset,
        last_offset=span.last,
        state=span.state,
        delivery_count=span.count,
        member_id=span.member_id,
        lock_end_ms=lock_end_ms,
        is_being_stored=span.transition is not None,
    )
