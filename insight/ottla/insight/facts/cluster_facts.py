"""The facts about a cluster that one answer needs, as a value. A fact that was not requested or not
found is None."""

from collections.abc import Mapping

from ottla.client.admin_parts.admin_brokers import LogDirDescription
from ottla.client.admin_parts.admin_groups import GroupDescription
from ottla.client.admin_parts.admin_quotas import QuotaOwner, QuotaUsage
from ottla.client.admin_parts.admin_share_groups import ShareOffset, ShareRecordCounts
from ottla.client.admin_parts.admin_transactions import TransactionDescription
from ottla.insight.facts.acl_facts import AclFacts
from ottla.insight.facts.hanging import OpenTransaction
from ottla.insight.facts.lags_driver import TimedLag
from ottla.insight.facts.removal_driver import BrokerRemoval
from ottla.insight.facts.survey_driver import Survey
from ottla.insight.facts.traffic_driver import TrafficSample
from ottla.model.balance.cluster_load import ClusterLoad
from ottla.model.ids import ProducerId, TopicPartition
from ottla.model.values import frozen


@frozen(kw_only=True)
class ClusterFacts:
    """Facts about a cluster at one time."""

    now_ms: int
    """Time of the facts in ms since 1970, by our clock."""
    missing: tuple[tuple[str, str], ...] = ()
    """Noun phrases for requested facts that are None, each with the reason."""
    survey: Survey | None = None
    acls: AclFacts | None = None
    quotas: Mapping[QuotaOwner, Mapping[str, float]] | None = None
    """All quotas, by entity and key."""
    usage: tuple[QuotaUsage, ...] | None = None
    """Clients with a quota at all brokers that respond."""
    group: GroupDescription | None = None
    lags: tuple[TimedLag, ...] | None = None
    earlier_commits: Mapping[TopicPartition, int] | None = None
    """Committed offsets of the group some seconds before `lags` was read."""
    observed_ms: int = 0
    """Time between `earlier_commits` and `lags`, in ms."""
    stable_ends: Mapping[TopicPartition, int] | None = None
    """Last stable offsets of the partitions in `lags`."""
    open_transactions: tuple[OpenTransaction, ...] | None = None
    transaction_owners: Mapping[ProducerId, tuple[TransactionDescription, ...]] | None = None
    """Transactions that coordinators know, by producer id."""
    share_group: GroupDescription | None = None
    share_offsets: Mapping[TopicPartition, ShareOffset] | None = None
    share_deliveries: Mapping[TopicPartition, ShareRecordCounts] | None = None
    log_dirs: Mapping[int, tuple[LogDirDescription, ...]] | None = None
    """Log directories by broker id."""

    traffic: tuple[TrafficSample, TrafficSample] | None = None
    """Counters of all brokers at two times, some seconds apart."""

    load: ClusterLoad | None = None
    """Input of the balance planner."""
    stored_move_count: int = 0
    """Number of moves of the balance plan in progress."""
    removal: BrokerRemoval | None = None
    refusal: str = ""
    """Reason why the state of the cluster forbids the change that is to be planned. Empty if
    nothing forbids it."""

    @property
    def unknown(self) -> list[str]:
        """Sentences about the facts that are missing."""
        found = [f"{fact}: {reason}" for fact, reason in self.missing]
        if self.survey is not None:
            if not self.survey.serves_own_requests:
                found.append(
                    "disks, throttles, states of brokers: only brokers of Ottla report them"
                )
            found += self.survey.denials
        return found
