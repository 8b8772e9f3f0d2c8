"""Protobuf messages between our own nodes, inside the metadata log and in a topic of ours.

metadata.proto        one record of the metadata log (`MetadataRecord`)
quorum.proto          Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot between voters
controller.proto      what a broker asks of the active controller
client_metrics.proto  one record of `__client_metrics` (`ClientMetricsRecord`)
generate.py           `python -m ottla.proto.generate` writes the committed *_pb2.py and *_pb2.pyi
"""
