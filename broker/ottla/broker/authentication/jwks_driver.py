"""Reads the keys of tokens: at the start, from time to time, and when a token names another one.

A worker thread asks; the loop goes on.  Keys that were read once count until newer ones are there.
What speaks HTTP is imported with the first question: most brokers have none.
"""

import logging
from collections.abc import Sequence
from functools import partial

import trio

from ottla.broker.authentication.authenticators import KeyPlan
from ottla.broker.authentication.jwks import JWKS_BYTES_MAX, VerificationKey, parse_jwks
from ottla.model.background_driver import keep_running
from ottla.model.errors import CorruptDataError
from ottla.model.settings.tls import TlsConfig
from ottla.model.tls.context_driver import read_material
from ottla.model.unexpected_errors import UnexpectedErrors

FORCED_PAUSE_S = 10.0
"""Between two reads at least: strangers choose which keys their tokens name."""

_LOGGER = logging.getLogger(__name__)


class KeyReader:
    """Keeps the keys of all listeners; ConfigError where their servers' CAs cannot be read."""

    def __init__(self, plans: Sequence[KeyPlan], errors: UnexpectedErrors) -> None:
        for plan in plans:
            if plan.rules.tls is not None:
                read_material(plan.rules.tls)
        self._plans = plans
        self._errors = errors

    async def run(self) -> None:
        """Read the keys whenever that is due, until cancelled."""
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
    """Read the keys.  Blocking; a thousand take the time of a turn of the loop and more."""
    from ottla.client.network.web_fetch import fetch

    return parse_jwks(fetch(url, bytes_max=JWKS_BYTES_MAX, tls=tls))


async def _read(plan: KeyPlan) -> None:
    """Read the keys; with failures, again and again."""
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
