"""Interface of the settings that secure the listeners for clients of a broker or a controller."""

from collections.abc import Mapping
from typing import Protocol

from ottla.model.settings.endpoints import ListenAddress
from ottla.model.settings.security.delegation_tokens import DelegationTokenConfig
from ottla.model.settings.security.sasl import SaslConfig
from ottla.model.settings.security.tls import TlsConfig


class ListenerSettings(Protocol):
    """Settings of a node that concern the listeners for its clients."""

    @property
    def listeners(self) -> tuple[ListenAddress, ...]:
        """Addresses and security protocols of the node's listeners."""
        ...

    @property
    def listener_tls(self) -> Mapping[str, TlsConfig]:
        """TLS settings by listener name, for the listeners that use TLS."""
        ...

    @property
    def inter_broker_listener(self) -> str:
        """Name of the listener on which nodes of the same role connect to each other by Kafka's
        protocol. Empty for a controller."""
        ...

    @property
    def sasl(self) -> SaslConfig:
        """SASL settings of the listeners on which clients log in."""
        ...

    @property
    def tokens(self) -> DelegationTokenConfig:
        """Settings of delegation tokens."""
        ...

    @property
    def texts(self) -> Mapping[str, str]:
        """Values in the settings file as text, by key."""
        ...
