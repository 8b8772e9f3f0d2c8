"""Connection quotas and TLS certificates of a broker's listeners. Both exist before the listeners
open."""

from typing import NamedTuple

from ottla.node.network.connection_quotas import ConnectionQuotas
from ottla.node.network.tls.certificates_driver import Certificates


class ListenerAdmission(NamedTuple):
    """Connection quotas and TLS certificates of a broker's listeners, created before the listeners
    open."""

    connections: ConnectionQuotas
    certificates: Certificates
