"""What decides who is let in at a broker's listeners, and how."""

from typing import NamedTuple

from ottla.broker.network.tls.certificates_driver import Certificates
from ottla.broker.quotas.connection_quotas import ConnectionQuotas


class Doors(NamedTuple):
    """It belongs to the broker from before its listeners are open."""

    connections: ConnectionQuotas
    certificates: Certificates
