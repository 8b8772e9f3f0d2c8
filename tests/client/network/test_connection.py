"""One connection's answers are for the requests that were sent, whatever ends a wait for one."""

import pytest
import trio

from ottla.client.network.connection import BrokerConnection, ConnectionLostError
from ottla.client.network.transport import TcpStream
from ottla.model.errors import RefusedError
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse


async def test_an_abandoned_answer_is_given_to_no_other_request() -> None:
    """A late answer would be read as that to the next request."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = listeners[0].socket.getsockname()
    async with listeners[0]:
        stream = await trio.open_tcp_stream(address[0], address[1])
        connection = BrokerConnection(TcpStream(stream), "127.0.0.1", "test")
        with trio.move_on_after(0.01) as patience:
            await connection.request(MetadataRequest(), MetadataResponse, 9)
        assert patience.cancelled_caught
        with pytest.raises(ConnectionLostError):
            await connection.request(MetadataRequest(), MetadataResponse, 9)
        await connection.aclose()


async def test_a_connection_that_has_not_settled_versions_refuses_every_api() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = listeners[0].socket.getsockname()
    async with listeners[0]:
        stream = await trio.open_tcp_stream(address[0], address[1])
        connection = BrokerConnection(TcpStream(stream), "127.0.0.1", "test")
        with pytest.raises(RefusedError, match="UNSUPPORTED_VERSION"):
            connection.version_of(MetadataRequest.API_KEY)
        await connection.aclose()
