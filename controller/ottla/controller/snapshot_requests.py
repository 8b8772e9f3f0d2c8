"""Decision on snapshots of the metadata that clients request (WriteSnapshot, Ottla's own API with
key 20008).

Pure. The active controller writes a snapshot of its image, from which a new or restarted node loads
the metadata. Kafka, in contrast, writes snapshots only by size and time.
"""

from ottla.controller.decision import Context, Decision
from ottla.metadata.image import MetadataImage
from ottla.model.ids import NodeId
from ottla.node.quorum.snapshot_report import SnapshotReport
from ottla.wire.messages.write_snapshot_request import WriteSnapshotRequest
from ottla.wire.messages.write_snapshot_response import WriteSnapshotResponse


def write_snapshot(
    image: MetadataImage, context: Context, request: WriteSnapshotRequest
) -> Decision[WriteSnapshotResponse]:
    """Return the controller's decision on a client's WriteSnapshot request."""
    reply = WriteSnapshotResponse(error_message=None)
    return Decision((), reply, image, snapshot_request=request)


def snapshot_response(node_id: NodeId, report: SnapshotReport) -> WriteSnapshotResponse:
    """Return the WriteSnapshot response that contains this node's report on the snapshot."""
    return WriteSnapshotResponse(
        error_message=None,
        node_id=node_id,
        end_offset=report.id.offset,
        epoch=report.id.epoch,
        size_bytes=report.size_bytes,
        latest_end_offset=report.latest_end_offset,
        log_start_offset=report.log_start_offset,
    )
