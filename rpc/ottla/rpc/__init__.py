"""The one place where gRPC meets trio.

method.py                  what a remote procedure is: path, request, response, handler
status.py                  how a refusal travels through gRPC
asyncio_thread_driver.py   the bridge: one asyncio loop on one thread
rpc_seam.py                remote procedures as nodes see them, gRPC or the world's
rpc_driver.py              servers and channels: `open_rpc_runtime`
blocking_driver.py         a client for a thread that waits
quorum_codec.py            raft's values as protobuf and back; the five methods of the quorum
quorum_client.py           both sides of the quorum's conversations
controller_methods.py      the methods of the controller
cluster_id.py              how a new node learns which cluster it joins
controller_client.py       a broker's calls to the active controller, wherever it is
"""
