"""Interface of the settings that secure the listeners for clients, on a broker or a controller."""

from collections.abc import Mapping
from typing import Protocol

from ottla.model.settings.endpoints import ListenAddress
from ottla.model.settings.security.delegation_tokens import DelegationTokenConfig
from ottla.model.settings.security.sasl import SaslConfig
from ottla.model.settings.security.tls import TlsConfig


class ListenerSettings(Protocol):
    """The part of a node's settings that concerns the listeners of its clients."""

    @property
    def listeners(self) -> tuple[ListenAddress, ...]:
        """Addresses and security protocols of the node's listeners."""
        ...

    @property
    def listener_tls(self) -> Mapping[str, TlsConfig]:
        """TLS settings of the encrypted listeners, by name."""
        ...

    @property
    def inter_broker_listener(self) -> str:
        """Listener by which this node connects to others of its role by Kafka's protocol; empty if
        it does not."""
        ...

    @property
    def sasl(self) -> SaslConfig:
        """SASL settings of the listeners that authenticate their clients."""
        ...

    @property
    def tokens(self) -> DelegationTokenConfig:
        """Settings of delegation tokens."""
        ...

    @property
    def texts(self) -> Mapping[str, str]:
        """The text of every key in the node's settings file."""
        ...
