"""Methods of asyncio's event loops that have no meaning in a simulated world, such as threads and
subprocesses. Each raises NotInWorldError with a sentence on what to use instead."""

import asyncio
from typing import Any

from ottla.testing.world.errors import NotInWorldError


def _refuse(name: str, advice: str) -> Any:
    def refused(self: object, *args: object, **options: object) -> Any:
        raise NotInWorldError(f"loop.{name} does not exist in a world: {advice}")

    refused.__name__ = name
    return refused


REFUSED = {
    "create_server": "a program of a world is a client only; call its functions in the scenario",
    "create_unix_server": "a program of a world is a client only",
    "create_unix_connection": "connect to a broker by host and port",
    "create_datagram_endpoint": "connect to a broker by host and port",
    "start_tls": "listeners of the world are not encrypted",
    "sendfile": "read the file and write its bytes to the connection",
    "connect_accepted_socket": "a world has no sockets; use create_connection",
    "connect_read_pipe": "a world has no pipes; use a topic or a store",
    "connect_write_pipe": "a world has no pipes; use a topic or a store",
    "subprocess_shell": "start the other program as an instance of the world",
    "subprocess_exec": "start the other program as an instance of the world",
    **dict.fromkeys(
        ("add_reader", "remove_reader", "add_writer", "remove_writer"),
        "a world has no file descriptors; use create_connection",
    ),
    **dict.fromkeys(
        (
            "sock_recv",
            "sock_recv_into",
            "sock_recvfrom",
            "sock_recvfrom_into",
            "sock_sendall",
            "sock_sendto",
            "sock_connect",
            "sock_accept",
            "sock_sendfile",
        ),
        "a world has no sockets; use create_connection",
    ),
}
"""Methods of asyncio's event loops that are refused in a simulated world, each with the advice in
its error message."""


class RefusingEventLoop(asyncio.AbstractEventLoop):
    """An event loop that raises NotInWorldError in each method of `REFUSED`."""


for _name, _advice in REFUSED.items():
    setattr(RefusingEventLoop, _name, _refuse(_name, _advice))
