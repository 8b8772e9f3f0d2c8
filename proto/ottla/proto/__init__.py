"""Protobuf messages between our own nodes and inside the metadata log.

metadata.proto    one record of the metadata log (`MetadataRecord`)
quorum.proto      Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot between voters
controller.proto  what a broker asks of the active controller
generate.py       `python -m ottla.proto.generate` writes the committed *_pb2.py and *_pb2.pyi
"""
