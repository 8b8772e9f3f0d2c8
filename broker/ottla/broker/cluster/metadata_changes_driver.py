"""DescribeMetadataChanges (Ottla's own, key 20007): describes the committed entries of the metadata
log in words.

A broker has a copy of the metadata log. It describes each record in words itself, so that no secret
in a record leaves the broker. A request may wait for the next entry.
"""

from itertools import islice
from typing import Protocol

import trio

from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.limits import KIB
from ottla.node.network.dispatch import RequestContext
from ottla.node.quorum.log_changes import changes_in, end_offset_of
from ottla.wire.codec_types import Message
from ottla.wire.messages.describe_metadata_changes_request import DescribeMetadataChangesRequest
from ottla.wire.messages.describe_metadata_changes_response import (
    DescribeMetadataChangesResponse,
    MetadataChange,
)
from ottla.wire.refusals import refuse

LATEST, EARLIEST = -1, -2
"""Special offsets in a DescribeMetadataChanges request: end and start of the metadata log."""

CHANGES_MAX = 500
"""Maximum number of metadata log entries in a response. A larger value delays other requests. With
a smaller value, a reader of the whole log sends more requests."""

READ_BYTES_MAX = 64 * KIB
"""Maximum bytes of the metadata log that are read for one response. At least one batch is read,
even if the batch is larger."""

WAIT_MS_MAX = 5_000
"""Maximum milliseconds that a request waits for the next entry of the metadata log."""


class AppliedLog(Protocol):
    """Metadata log of this node, up to the last record that the node's metadata image contains."""

    @property
    def image(self) -> MetadataImage:
        """Metadata image that results from all applied records of the metadata log."""
        ...

    @property
    def start_offset(self) -> Offset:
        """First offset of the metadata log that this node still stores."""
        ...

    @property
    def applied_end_offset(self) -> Offset:
        """End offset of the metadata records that have been applied to this node's image."""
        ...

    async def wait_applied(self, end_offset: Offset) -> None:
        """Wait until all metadata records below an offset have been applied to this node's
        image."""
        ...

    async def read_applied(self, offset: Offset, *, bytes_max: int) -> bytes:
        """Return whole batches of applied metadata records, beginning at an offset. The result has
        up to `bytes_max` bytes, but at least one batch."""
        ...


class MetadataChangesApi:
    """Handler of DescribeMetadataChanges, version 0, which describes entries of the metadata
    log."""

    def __init__(self, log: AppliedLog) -> None:
        self._log = log

    async def handle(
        self, context: RequestContext, request: DescribeMetadataChangesRequest
    ) -> Message:
        """Answer the request with the entries of the metadata log from the requested offset on. If
        no such entry exists yet, wait for the next one."""
        log = self._log
        offset = Offset(request.start_offset)
        if offset == LATEST:
            offset = log.applied_end_offset
        elif offset == EARLIEST:
            offset = log.start_offset
        if not log.start_offset <= offset <= log.applied_end_offset:
            refusal = RefusedError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The metadata log of this broker has the offsets {log.start_offset} to"
                f" {log.applied_end_offset}.",
            )
            return refuse(request, refusal, context.api_version)
        with trio.move_on_after(max(0, min(request.wait_ms, WAIT_MS_MAX)) / 1000):
            await log.wait_applied(Offset(offset + 1))
        end_offset = log.applied_end_offset
        data = await log.read_applied(offset, bytes_max=READ_BYTES_MAX)
        found = changes_in(data, log.image, start_offset=offset)
        changes = list(islice(found, CHANGES_MAX))
        next_offset = max(offset, end_offset_of(data))
        if len(changes) == CHANGES_MAX:
            next_offset = Offset(changes[-1].offset + 1)
        return DescribeMetadataChangesResponse(
            error_message=None,
            next_offset=next_offset,
            end_offset=end_offset,
            changes=[
                MetadataChange(
                    offset=one.offset,
                    epoch=one.epoch,
                    timestamp_ms=one.timestamp_ms,
                    kind=one.kind,
                    text=one.text,
                )
                for one in changes
            ],
        )
