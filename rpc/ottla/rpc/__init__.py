"""The one place where gRPC meets trio.

method.py                  what a remote procedure is: path, request, response, handler
status.py                  how a refusal travels through gRPC
asyncio_thread_driver.py   the bridge: one asyncio loop on one thread
rpc_driver.py              servers and channels: `open_rpc_runtime`
"""
