"""Certificates of a node's listeners and of its connections to other brokers, reloaded when they
change.

A changed file is used within seconds, without a restart and without closing connections. If a file
cannot be used, the current certificate stays in use and an ERROR is logged. The file is read again
until it can be used, because a certificate and its key may be written one after the other. Changes
of dynamic settings are applied at once, in the same way.
"""

import logging
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import partial

import trio

from ottla.client.network.tls import TlsDialer
from ottla.model.errors import ConfigError
from ottla.model.log_events import event
from ottla.model.settings.security.dynamic_tls import (
    check_listener,
    is_listener_tls_key,
    tls_in_force,
)
from ottla.model.settings.security.listener_settings import ListenerSettings
from ottla.model.settings.security.tls import TlsConfig
from ottla.model.tls.changed_files_driver import Stamps, stamps_of
from ottla.model.tls.context_driver import check_own_trust
from ottla.node.network.tls.served_tls_driver import PreparedTls, ServedTls
from ottla.node.seams import Compute

logger = logging.getLogger("ottla.node.network")

LOOKS_AGAIN_AFTER_S = 10.0
"""Seconds between checks of the certificate files. A smaller value uses new files sooner; a larger
one costs fewer system calls."""

TAKES_OVER_WITHIN_S = 1.0
"""Maximum seconds for which the publication of metadata waits until a changed certificate is
applied. A longer wait delays all later metadata."""


class Certificates:
    """Certificates and TLS settings of all encrypted listeners of a node, reloaded when they
    change."""

    def __init__(self, config: ListenerSettings, compute: Compute) -> None:
        """Read the certificate and key files of all encrypted listeners. Raises ConfigError if a
        file cannot be used.

        `compute` runs the function that reads changed files later, while the broker serves.
        """
        self._config = config
        self._compute = compute
        protocols = {one.name: one.protocol for one in config.listeners}
        self.served = {
            name: ServedTls(protocols[name], tls, failure_delay_ms=config.sasl.failure_delay_ms)
            for name, tls in config.listener_tls.items()
        }
        """TLS settings and certificate of each encrypted listener, by listener name."""
        self.dialer: TlsDialer | None = None
        """TLS of outgoing connections to other brokers; None if their listener is not encrypted."""
        self._dialled = config.inter_broker_listener
        if self._dialled in self.served:
            tls = self.served[self._dialled]
            check_own_trust(tls.config, tls.material)
            self.dialer = TlsDialer(tls.config)
        self._signatures = {name: stamps_of(tls.config.files) for name, tls in self.served.items()}
        self._logged_refusals: dict[str, str] = {}
        self._wanted = {name: tls.config for name, tls in self.served.items()}
        """Desired TLS settings of each encrypted listener, from the settings file and the
        metadata."""
        self._asked_count = self._seen_count = 0
        """Number of changes of TLS settings requested by metadata images, and number of these
        changes that were already applied."""
        self._is_asked, self._is_seen = trio.Event(), trio.Event()

    def warnings(self) -> list[str]:
        """Return warnings about the listeners' certificates for the operator."""
        now = datetime.now(UTC)
        return [
            f"listener {name}: {sentence}"
            for name, tls in self.served.items()
            for sentence in tls.material.warnings(now)
        ]

    async def take_over(self, overrides: Mapping[str, str]) -> None:
        """Apply the dynamic TLS settings of this broker. Settings other than TLS are ignored.

        Waits for the result only for a short time, since files may be on an unresponsive file
        system. Settings that cannot be used are refused before they are stored. If files or the
        broker's own settings have changed since then, the settings may fail here. The current
        certificate then stays in use, and an ERROR is logged.
        """
        for key in filter(is_listener_tls_key, overrides):
            try:
                check_listener(self._config, key)
            except ConfigError as error:
                logger.warning("a dynamic setting has no effect: %s", error)
        for name in self.served:
            try:
                self._wanted[name] = tls_in_force(self._config, name, overrides)
            except ConfigError as error:
                self._log_refused_once(name, error)
        self._asked_count += 1
        self._is_asked.set()
        with trio.move_on_after(TAKES_OVER_WITHIN_S):
            await self.settled()

    async def check(self, overrides: Mapping[str, str], keys: Collection[str]) -> None:
        """Validate dynamic TLS settings. Raises ConfigError if a listener could not apply them.

        `keys` are the new settings. Certificates in use are not affected.
        """
        for key in keys:
            check_listener(self._config, key)
        for name in self.served:
            wanted = tls_in_force(self._config, name, overrides)
            if wanted != self._wanted[name]:
                await self._compute(partial(self._prepared, name, wanted))

    async def settled(self) -> None:
        """Wait until all changes of TLS settings that were requested through `take_over` are
        applied."""
        asked_count = self._asked_count
        while self.served and self._seen_count < asked_count:
            await self._is_seen.wait()

    async def watch(self) -> None:
        """Reload changed certificate files and settings until cancelled."""
        while self.served:
            with trio.move_on_after(LOOKS_AGAIN_AFTER_S):
                await self._is_asked.wait()
            self._is_asked, asked_count = trio.Event(), self._asked_count
            for name in self.served:
                await self.look_at(name)
            self._seen_count = asked_count
            self._is_seen.set()
            self._is_seen = trio.Event()

    async def look_at(self, name: str) -> None:
        """Apply the desired certificate and TLS settings to the listener `name`, if its files or
        settings have changed."""
        wanted = self._wanted[name]
        signature = await self._compute(partial(stamps_of, wanted.files))
        if wanted != self.served[name].config or signature != self._signatures[name]:
            await self.use(name, wanted, signature)

    async def use(self, name: str, config: TlsConfig, signature: Stamps | None = None) -> None:
        """Apply a TLS configuration to the listener `name`. If the configuration cannot be used,
        log the reason and keep the current one."""
        tls = self.served[name]
        try:
            prepared = await self._compute(partial(self._prepared, name, config))
        except ConfigError as error:
            self._log_refused_once(name, error)
            return
        tls.take_up(prepared)
        if name == self._dialled and self.dialer is not None:
            self.dialer.use(config)
        self._signatures[name] = signature if signature is not None else stamps_of(config.files)
        self._logged_refusals.pop(name, None)
        own = prepared.material.certificate
        assert own is not None
        logger.info(
            "listener %s has a new certificate: %s, valid until %s",
            name,
            own.subject,
            f"{own.not_after:%Y-%m-%d %H:%M} UTC",
            extra=event("certificate.loaded"),
        )

    def _log_refused_once(self, name: str, error: ConfigError) -> None:
        """Log an ERROR with the reason why a listener's changed certificate is refused. Does
        nothing if the same error was logged before. The listener keeps its current certificate."""
        if self._logged_refusals.get(name) != str(error):
            self._logged_refusals[name] = str(error)
            logger.error(
                "the new certificate of listener %s cannot be used, the old one stays: %s",
                name,
                error,
                extra=event("certificate.refused"),
            )

    def _prepared(self, name: str, config: TlsConfig) -> PreparedTls:
        prepared = self.served[name].prepared(config)
        if name == self._dialled:
            check_own_trust(config, prepared.material)
        return prepared
