"""How a client that runs for long comes to new certificates."""

import logging
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from ottla.client.network.tls import LOOKS_AGAIN_AFTER_S, TlsDialer
from ottla.model.settings.tls import TlsConfig

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority


async def test_a_dialer_uses_a_new_file_and_keeps_the_old_one_where_that_is_none(
    authority: "CertificateAuthority",
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ottla.client.network")
    file = authority.issue("client")
    dialer = TlsDialer(TlsConfig(certificate_location=str(file)))
    first = dialer.context
    good = file.read_bytes()
    file.write_bytes(b"nothing")
    assert dialer.context is first  # it is not looked at for each connection
    for _ in range(3):
        await trio.sleep(LOOKS_AGAIN_AFTER_S)
        assert dialer.context is first
    assert caplog.text.count("new certificates are not taken up, the old ones stay") == 1
    file.write_bytes(good + b"\n")
    await trio.sleep(LOOKS_AGAIN_AFTER_S)
    assert dialer.context is not first
    assert "new certificates for connections to brokers" in caplog.text
