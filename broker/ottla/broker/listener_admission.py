"""Connection quotas and TLS certificates of a broker's listeners."""

from typing import NamedTuple

from ottla.broker.network.tls.certificates_driver import Certificates
from ottla.broker.quotas.connection_quotas import ConnectionQuotas


class ListenerAdmission(NamedTuple):
    """Connection quotas and certificates, created before the listeners open."""

    connections: ConnectionQuotas
    certificates: Certificates
