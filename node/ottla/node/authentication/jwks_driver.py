"""Reads the keys that verify tokens: at startup, periodically, and when a token names an unknown
key.

A worker thread sends the request, so that the event loop continues. Keys stay valid until newer
keys are read. The HTTP client is imported at the first request, because most brokers need no HTTP
client.
"""

import logging
from collections.abc import Sequence
from functools import partial

import trio

from ottla.model.background_driver import keep_running
from ottla.model.errors import CorruptDataError
from ottla.model.settings.security.tls import TlsConfig
from ottla.model.tls.context_driver import read_material
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.authentication.authenticators import KeyPlan
from ottla.node.authentication.jwks import JWKS_BYTES_MAX, VerificationKey, parse_jwks
from ottla.node.part_registry import PartRegistry

FORCED_PAUSE_S = 10.0
"""Minimum seconds between two reads of a JWKS (a set of public keys). Without this minimum,
unauthenticated clients could cause reads by sending tokens with unknown key ids."""

_LOGGER = logging.getLogger(__name__)


class KeyReader:
    """Background task that reads the public keys for verifying tokens, for all listeners. Raises
    ConfigError if the CA certificates for a key server cannot be read."""

    def __init__(self, plans: Sequence[KeyPlan], errors: UnexpectedErrors) -> None:
        for plan in plans:
            if plan.rules.tls is not None:
                read_material(plan.rules.tls)
        self._plans = plans
        self._errors = errors

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that reads the keys for verifying tokens."""
        parts.task("keys of tokens", self.run)

    async def run(self) -> None:
        """Read the keys of each source (a URL of a JWKS) whenever a read is due, until
        cancelled."""
        async with trio.open_nursery() as nursery:
            for plan in self._plans:
                nursery.start_soon(
                    keep_running, "keys of tokens", partial(_keep, plan), self._errors
                )
            await trio.sleep_forever()


async def _keep(plan: KeyPlan) -> None:
    while True:
        wanted = trio.Event()
        plan.source.on_wanted = wanted.set
        await _read(plan)
        await trio.sleep(min(FORCED_PAUSE_S, plan.rules.refresh_ms / 1_000))
        with trio.move_on_after(max(0, plan.rules.refresh_ms / 1_000 - FORCED_PAUSE_S)):
            await wanted.wait()


def _keys_at(url: str, tls: TlsConfig | None) -> tuple[VerificationKey, ...]:
    """Return the public keys that are published at a URL. Must be called in a worker thread,
    because decoding a thousand keys would block the event loop for too long."""
    from ottla.client.network.web_fetch import fetch

    return parse_jwks(fetch(url, bytes_max=JWKS_BYTES_MAX, tls=tls))


async def _read(plan: KeyPlan) -> None:
    """Read the keys of one source (a URL of a JWKS), and retry with growing pauses until a read
    succeeds."""
    from ottla.client.network.web_fetch import WebFetchError

    source, rules = plan.source, plan.rules
    wait_ms = rules.backoff_ms
    while True:
        try:
            source.keys = await trio.to_thread.run_sync(
                _keys_at, source.url, rules.tls, abandon_on_cancel=True
            )
        except (WebFetchError, CorruptDataError) as error:
            if not source.problem:
                _LOGGER.warning("the keys of OAUTHBEARER's tokens: %s", error)
            source.problem = f"the keys of OAUTHBEARER's tokens: {error}"
            await trio.sleep(wait_ms / 1_000)
            wait_ms = min(2 * wait_ms, rules.backoff_ms_max)
            continue
        if source.problem:
            _LOGGER.info("the keys of OAUTHBEARER's tokens are read from %s again", source.url)
        source.problem = ""
        return
