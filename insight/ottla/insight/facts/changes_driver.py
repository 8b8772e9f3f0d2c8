"""Reads the most recent changes of the cluster's metadata, in words (DescribeMetadataChanges
requests)."""

from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.values import frozen
from ottla.wire.messages.describe_metadata_changes_request import DescribeMetadataChangesRequest
from ottla.wire.messages.describe_metadata_changes_response import (
    DescribeMetadataChangesResponse,
    MetadataChange,
)

LATEST, EARLIEST = -1, -2
WINDOW_ENTRIES = 500
"""Number of offsets of the metadata log that the search for changes examines per step backwards. An
idle cluster writes two entries per second that change nothing."""
REQUESTS_MAX = 24
"""Maximum number of requests for one list of metadata changes. An hour of an idle cluster takes
about fifteen."""


@frozen(kw_only=True)
class RecentChanges:
    """The most recent changes of the cluster's metadata, newest first."""

    changes: tuple[MetadataChange, ...]
    is_complete: bool
    """False if older metadata changes within the requested time were left out."""
    end_offset: int
    """Offset in the metadata log after the last entry that was read."""


async def later_changes(
    admin: Admin, known: RecentChanges, *, since_ms: int, count_max: int
) -> RecentChanges:
    """Return the same result as `recent_changes`, but read only the log entries after those in
    `known`, if possible. `known` must be of the same cluster, with an earlier or equal `since_ms`
    and the same `count_max`."""
    end = (await _ask(admin, LATEST)).end_offset
    if not 0 <= end - known.end_offset <= WINDOW_ENTRIES:
        return await recent_changes(admin, since_ms=since_ms, count_max=count_max)
    found: list[MetadataChange] = []
    at = known.end_offset
    while at < end:
        try:
            answer = await _ask(admin, at)
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            # These entries are in a snapshot already.
            return await recent_changes(admin, since_ms=since_ms, count_max=count_max)
        found += [one for one in answer.changes if one.offset < end]
        if answer.next_offset <= at:
            break
        at = answer.next_offset
    present = (*reversed(found), *known.changes)
    recent = [one for one in present if one.timestamp_ms >= since_ms]
    # A list that was cut stays incomplete until its oldest change is older than the time.
    is_cut = not known.is_complete and len(recent) == len(present)
    return RecentChanges(
        changes=tuple(recent[:count_max]),
        is_complete=not is_cut and len(recent) <= count_max,
        end_offset=end,
    )


async def recent_changes(admin: Admin, *, since_ms: int, count_max: int) -> RecentChanges:
    """Return the most recent changes of the cluster's metadata since the time `since_ms`, in ms
    since 1970. At most `count_max` changes are returned.

    The metadata log is read backwards, by at most REQUESTS_MAX requests. Raises RefusedError with
    UNSUPPORTED_VERSION if the brokers do not have the request.
    """
    last = end = (await _ask(admin, LATEST)).end_offset
    found: list[MetadataChange] = []
    left = REQUESTS_MAX
    while end > 0 and left > 0 and len(found) < count_max:
        start = max(0, end - WINDOW_ENTRIES)
        window: list[MetadataChange] = []
        at, is_first = start, False
        while at < end and left > 0:
            left -= 1
            try:
                answer = await _ask(admin, at)
            except RefusedError as refusal:
                if refusal.code is not ErrorCode.OFFSET_OUT_OF_RANGE or is_first:
                    raise
                # Older entries are in a snapshot.
                is_first, at = True, EARLIEST
                answer = await _ask(admin, at)
            window += [one for one in answer.changes if one.offset < end]
            if answer.next_offset <= at:
                break
            at = answer.next_offset
        found += reversed(window)
        if is_first or start == 0 or (window and window[0].timestamp_ms < since_ms):
            left = max(left, 1)
            break
        end = start
    recent = [one for one in found if one.timestamp_ms >= since_ms]
    return RecentChanges(
        changes=tuple(recent[:count_max]),
        is_complete=left > 0 and len(recent) <= count_max,
        end_offset=last,
    )


async def _ask(admin: Admin, offset: int) -> DescribeMetadataChangesResponse:
    request = DescribeMetadataChangesRequest(start_offset=offset, wait_ms=0)
    answer = await admin.cluster.request(request, DescribeMetadataChangesResponse)
    raise_for(answer.error_code, answer.error_message)
    return answer
