"""Blocks of producer ids (KIP-730). Each block is allocated only once."""

from ottla.controller.broker_epochs import registered
from ottla.controller.decision import Decision, decided
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import producer_ids_record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.limits import INT64_MAX, PRODUCER_ID_BLOCK_COUNT
from ottla.proto import controller_pb2 as pb


def allocate_producer_ids(
    image: MetadataImage, request: pb.AllocateProducerIdsRequest
) -> Decision[pb.AllocateProducerIdsResponse]:
    """Return the decision that allocates the next block of producer ids to a broker. If the reply
    to the broker is lost, the block is never used."""
    broker = registered(image, request.broker_id, request.broker_epoch)
    start = image.next_producer_id
    if start > INT64_MAX - PRODUCER_ID_BLOCK_COUNT:
        raise RefusedError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producer ids; 2^63 were handed out."
        )
    record = producer_ids_record(broker.id, broker.epoch, start + PRODUCER_ID_BLOCK_COUNT)
    return decided(
        image,
        (record,),
        pb.AllocateProducerIdsResponse(
            producer_id_start=start, producer_id_count=PRODUCER_ID_BLOCK_COUNT
        ),
    )
