"""gRPC between nodes. Only this package imports gRPC, apart from telemetry's OTLP exporter.

method.py                  descriptor of a remote procedure: path, request, response, handler
caller.py                  identity of a caller, by its TLS certificate
status.py                  conversion of RefusedError to gRPC statuses and back
rpc_seam.py                interface of remote procedures: gRPC or the simulation
rpc_driver.py              servers and channels: `open_rpc_runtime`
node_certificates_driver.py  TLS certificates of a node, reloaded when their files change
blocking_driver.py         a client for tools without an event loop
quorum_codec.py            conversion of raft's messages to protobuf and back
quorum_client.py           client and handlers of the quorum's requests
controller_methods.py      descriptors of the controller's methods
cluster_id.py              discovery of the cluster id by a new node
controller_client.py       a broker's calls to the active controller, which it finds by itself
"""
