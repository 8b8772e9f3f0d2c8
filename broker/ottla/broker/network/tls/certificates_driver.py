"""The certificates of a broker's listeners, and the one it shows other brokers; watched.

A file that has changed is taken up within seconds, without a restart and without a connection
ending.  One that cannot be used leaves what there is, with an ERROR; it is tried again until it can
be, since a certificate and its key may be written one after the other.  Settings that change while
the broker runs are taken up the same way, at once: files and settings are one state to come to.
"""

import logging
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import partial

import trio

from ottla.broker.network.tls.served_tls_driver import PreparedTls, ServedTls
from ottla.client.network.tls import TlsDialer
from ottla.model.errors import ConfigError
from ottla.model.log_events import event
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.dynamic_tls import check_listener, is_listener_tls_key, tls_in_force
from ottla.model.settings.tls import TlsConfig
from ottla.model.tls.changed_files_driver import Stamps, stamps_of
from ottla.model.tls.context_driver import check_own_trust
from ottla.node.seams import Compute

logger = logging.getLogger("ottla.broker.network")

LOOKS_AGAIN_AFTER_S = 10.0
"""How often files are looked at.  Lower takes new ones up sooner, higher costs fewer calls."""

TAKES_OVER_WITHIN_S = 1.0
"""How long metadata waits for a certificate that it brings.  Higher holds up all that follows."""


class Certificates:
    """TLS of all listeners of a broker that encrypt."""

    def __init__(self, config: BrokerConfig, compute: Compute) -> None:
        """Read every file; raises ConfigError where one cannot be used.

        `compute` is where files are read later, while the broker serves.
        """
        self._config = config
        self._compute = compute
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
        self._wanted = {name: tls.config for name, tls in self.served.items()}
        """What each listener is to come to, by the file and the metadata."""
        self._asked_count = self._seen_count = 0
        """Times the metadata changed it, and how many of these were looked at."""
        self._is_asked, self._is_seen = trio.Event(), trio.Event()

    def warnings(self) -> list[str]:
        """Return what an operator should know of certificates, one sentence each."""
        now = datetime.now(UTC)
        return [
            f"listener {name}: {sentence}"
            for name, tls in self.served.items()
            for sentence in tls.material.warnings(now)
        ]

    async def take_over(self, overrides: Mapping[str, str]) -> None:
        """Take up the dynamic settings of this broker; those of other parts are passed over.

        It is waited for, but not for long: files may lie where nothing answers.
        What cannot be used was refused before it became a setting, unless files or the broker's
        own settings have changed since: then what there is stays, with an ERROR.
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
                self._complain(name, error)
        self._asked_count += 1
        self._is_asked.set()
        with trio.move_on_after(TAKES_OVER_WITHIN_S):
            await self.settled()

    async def check(self, overrides: Mapping[str, str], keys: Collection[str]) -> None:
        """Try out dynamic settings; ConfigError where a listener could not take them up.

        `keys` are those that are new.  Nothing that is served is touched.
        """
        for key in keys:
            check_listener(self._config, key)
        for name in self.served:
            wanted = tls_in_force(self._config, name, overrides)
            if wanted != self._wanted[name]:
                await self._compute(partial(self._prepared, name, wanted))

    async def settled(self) -> None:
        """Wait until all that `take_over` said was looked at."""
        asked_count = self._asked_count
        while self.served and self._seen_count < asked_count:
            await self._is_seen.wait()

    async def watch(self) -> None:
        """Take up new files and settings as they come, until cancelled."""
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
        """Take up what one listener is to come to, if its files or settings have changed."""
        wanted = self._wanted[name]
        signature = await self._compute(partial(stamps_of, wanted.files))
        if wanted != self.served[name].config or signature != self._signatures[name]:
            await self.use(name, wanted, signature)

    async def use(self, name: str, config: TlsConfig, signature: Stamps | None = None) -> None:
        """Take up a configuration of a listener, or log why not."""
        tls = self.served[name]
        try:
            prepared = await self._compute(partial(self._prepared, name, config))
        except ConfigError as error:
            self._complain(name, error)
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

    def _complain(self, name: str, error: ConfigError) -> None:
        """Log once why a listener keeps its certificate."""
        if self._complaints.get(name) != str(error):
            self._complaints[name] = str(error)
            logger.error(
                "the new certificate of listener %s is not taken up, the old one stays: %s",
                name,
                error,
                extra=event("certificate.refused"),
            )

    def _prepared(self, name: str, config: TlsConfig) -> PreparedTls:
        prepared = self.served[name].prepared(config)
        if name == self._dialled:
            check_own_trust(config, prepared.material)
        return prepared
