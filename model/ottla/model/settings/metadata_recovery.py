"""Settings for clients whose metadata has become unusable: no known broker is reachable, or the
brokers belong to another cluster (KIP-899, KIP-1102, KIP-1242)."""

from ottla.model.settings.declare import setting
from ottla.model.settings.security.client_security import ClientSecurity
from ottla.model.values import frozen

REBOOTSTRAP = "rebootstrap"
STRATEGIES = ("none", REBOOTSTRAP)


@frozen(kw_only=True)
class RecoveringClient(ClientSecurity):
    """Settings that decide when a client discards its metadata and starts again from its bootstrap
    addresses."""

    metadata_recovery_strategy: str = setting(
        REBOOTSTRAP,
        key="metadata.recovery.strategy",
        one_of=STRATEGIES,
        doc="Use of the bootstrap addresses after the first metadata: they are asked whenever no "
        "known broker answers, and the client drops all metadata and starts again from them if a "
        "broker requires it (rebootstrap); or they are not used again (none).",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        300_000,
        key="metadata.recovery.rebootstrap.trigger.ms",
        at_least=0,
        doc="Time without an answer to a request for metadata after which the client drops all "
        "metadata and starts again from the bootstrap addresses. It needs the strategy "
        "rebootstrap.",
    )
    metadata_cluster_check_enable: bool = setting(
        True,
        key="metadata.cluster.check.enable",
        doc="Whether a connection names the broker and the cluster that the metadata has at its "
        "address, so that another broker refuses it and the client starts again from the "
        "bootstrap addresses (KIP-1242). Brokers before Kafka 4.4 ignore the names; the client "
        "then compares the cluster id of each Metadata response only. It needs the strategy "
        "rebootstrap.",
    )
