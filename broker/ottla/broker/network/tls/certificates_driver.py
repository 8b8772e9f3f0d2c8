"""The certificates of a broker's listeners, and the one it shows other brokers; watched.

A file that has changed is taken up within seconds, without a restart and without a connection
ending.  One that cannot be used leaves what there is, with an ERROR; it is tried again until it can
be, since a certificate and its key may be written one after the other.
"""

import logging
from datetime import UTC, datetime

import trio

from ottla.broker.network.tls.served_tls_driver import PreparedTls, ServedTls
from ottla.client.network.tls import TlsDialer
from ottla.model.errors import ConfigError
from ottla.model.log_events import event
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.tls import TlsConfig
from ottla.model.tls.changed_files_driver import Stamps, stamps_of
from ottla.model.tls.context_driver import check_own_trust

logger = logging.getLogger("ottla.broker.network")

LOOKS_AGAIN_AFTER_S = 10.0
"""How often files are looked at.  Lower takes new ones up sooner, higher costs fewer calls."""


class Certificates:
    """TLS of all listeners of a broker that encrypt."""

    def __init__(self, config: BrokerConfig) -> None:
        """Read every file; raises ConfigError where one cannot be used."""
        protocols = {one.name: one.protocol for one in config.listeners}
        self.served = {
            name: ServedTls(protocols[name], tls, failure_delay_ms=config.sasl.failure_delay_ms)
            for name, tls in config.listener_tls.items()
        }
        """By the listener's name."""
        self.dialer: TlsDialer | None = None
        """How this broker connects to others, where their listener encrypts."""
        self._dialled = config.inter_broker_listener
        if self._dialled in self.served:
            tls = self.served[self._dialled]
            check_own_trust(tls.config, tls.material)
            self.dialer = TlsDialer(tls.config)
        self._signatures = {name: stamps_of(tls.config.files) for name, tls in self.served.items()}
        self._complaints: dict[str, str] = {}

    def warnings(self) -> list[str]:
        """Return what an operator should know of certificates, one sentence each."""
        now = datetime.now(UTC)
        return [
            f"listener {name}: {sentence}"
            for name, tls in self.served.items()
            for sentence in tls.material.warnings(now)
        ]

    async def watch(self) -> None:
        """Take up new files as they come, until cancelled."""
        while self.served:
            await trio.sleep(LOOKS_AGAIN_AFTER_S)
            for name in self.served:
                await self.look_at(name)

    async def look_at(self, name: str) -> None:
        """Take up the files of one listener if they have changed."""
        tls = self.served[name]
        signature = await trio.to_thread.run_sync(stamps_of, tls.config.files)
        if signature != self._signatures[name]:
            await self.use(name, tls.config, signature)

    async def use(self, name: str, config: TlsConfig, signature: Stamps | None = None) -> None:
        """Take up a configuration of a listener, or log why not."""
        tls = self.served[name]
        try:
            prepared = await trio.to_thread.run_sync(self._prepared, name, config)
        except ConfigError as error:
            if self._complaints.get(name) != str(error):
                self._complaints[name] = str(error)
                logger.error(
                    "the new certificate of listener %s is not taken up, the old one stays: %s",
                    name,
                    error,
                    extra=event("certificate.refused"),
                )
            return
        tls.take_up(prepared)
        if name == self._dialled and self.dialer is not None:
            self.dialer.use(config)
        self._signatures[name] = signature if signature is not None else stamps_of(config.files)
        self._complaints.pop(name, None)
        own = prepared.material.certificate
        assert own is not None
        logger.info(
            "listener %s has a new certificate: %s, valid until %s",
            name,
            own.subject,
            f"{own.not_after:%Y-%m-%d %H:%M} UTC",
            extra=event("certificate.loaded"),
        )

    def _prepared(self, name: str, config: TlsConfig) -> PreparedTls:
        prepared = self.served[name].prepared(config)
        if name == self._dialled:
            check_own_trust(config, prepared.material)
        return prepared
