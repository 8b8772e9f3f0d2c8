"""Protobuf messages between nodes, in the metadata log, and in the topic `__client_metrics`.

metadata.proto        one record of the metadata log (`MetadataRecord`)
quorum.proto          Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot between voters
controller.proto      requests of brokers to the active controller
client_metrics.proto  one record of `__client_metrics` (`ClientMetricsRecord`)
generate.py           `python -m ottla.proto.generate` writes the committed *_pb2.py and *_pb2.pyi
"""
