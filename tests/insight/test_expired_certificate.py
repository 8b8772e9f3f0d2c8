"""`ottla explain unavailable` at a listener whose certificate has expired."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trio
import trustme

from ottla.client import ClientSecurity
from ottla.client.admin import open_admin
from ottla.insight.answers_driver import answer
from tests.insight.interfaces import check_interfaces

TIMEOUT_S = 60


async def hold(stream: trio.SocketStream, context: ssl.SSLContext) -> None:
    """Handshake as a broker does, and serve nothing."""
    try:
        await trio.SSLStream(stream, context, server_side=True).do_handshake()
    except trio.BrokenResourceError:
        return


async def test_the_cause_is_the_certificate_with_the_command_that_renews_it(
    tmp_path: Path,
) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    ended = datetime.now(UTC) - timedelta(days=1)
    certificate = ca.issue_cert("127.0.0.1", not_before=ended - timedelta(days=9), not_after=ended)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    security = ClientSecurity(
        security_protocol="SSL", ssl_truststore_location=str(tmp_path / "ca.pem")
    )
    with trio.fail_after(TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(
                trio.serve_listeners, lambda stream: hold(stream, context), [listener]
            )
            _, port = listener.socket.getsockname()
            async with open_admin(f"127.0.0.1:{port}", security=security, timeout_s=5) as admin:
                found = await answer(admin, "unavailable", {})
                fix = found.causes[0].fix
                await check_interfaces(admin, ["unavailable"], "certificate", fix)
            nursery.cancel_scope.cancel()
    (cause,) = found.causes
    assert cause.kind == "certificate"
    assert "its certificate has expired" in cause.summary
    assert cause.fix == "ottla certificates renew KEYSTORE.pem --ca CA"
