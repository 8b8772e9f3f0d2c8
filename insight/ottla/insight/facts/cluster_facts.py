"""Facts about the cluster that one question of `ottla explain` needs. A fact is None if it was not
requested or not found."""

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
    """Data about a cluster at one time, from which `ottla explain` derives causes."""

    now_ms: int
    """Time in ms since 1970 at which the data were read, by this machine's clock."""
    missing: tuple[tuple[str, str], ...] = ()
    """Requested data that could not be read: pairs of a noun phrase and the reason."""
    survey: Survey | None = None
    acls: AclFacts | None = None
    quotas: Mapping[QuotaOwner, Mapping[str, float]] | None = None
    """All quotas of the cluster, by entity and key. None if they were not read."""
    usage: tuple[QuotaUsage, ...] | None = None
    """Usage of quotas by clients, from all brokers that respond. None if it was not read."""
    group: GroupDescription | None = None
    lags: tuple[TimedLag, ...] | None = None
    earlier_commits: Mapping[TopicPartition, int] | None = None
    """Committed offsets of the group some seconds before `lags` was read. None if they were not
    read."""
    observed_ms: int = 0
    """Time between the reading of `earlier_commits` and of `lags`, in ms."""
    stable_ends: Mapping[TopicPartition, int] | None = None
    """Last stable offsets of the partitions in `lags`. None if they were not read."""
    open_transactions: tuple[OpenTransaction, ...] | None = None
    transaction_owners: Mapping[ProducerId, tuple[TransactionDescription, ...]] | None = None
    """Transactions that coordinators know, by producer id. None if they were not read."""
    share_group: GroupDescription | None = None
    share_offsets: Mapping[TopicPartition, ShareOffset] | None = None
    share_deliveries: Mapping[TopicPartition, ShareRecordCounts] | None = None
    log_dirs: Mapping[int, tuple[LogDirDescription, ...]] | None = None
    """Log directories by broker id. None if they were not read."""

    traffic: tuple[TrafficSample, TrafficSample] | None = None
    """Traffic counters of all brokers at two times, some seconds apart. None if they were not
    read."""

    load: ClusterLoad | None = None
    """Loads of brokers and partitions, as input of the balance planner. None if they were not
    read."""
    stored_move_count: int = 0
    """Number of replica moves of the balance plan in progress."""
    removal: BrokerRemoval | None = None
    refusal: str = ""
    """Reason why the present state of the cluster forbids the planned change, or an empty text if
    it allows the change."""

    @property
    def unknown(self) -> list[str]:
        """Sentences about the requested data that could not be read."""
        found = [f"{fact}: {reason}" for fact, reason in self.missing]
        if self.survey is not None:
            if not self.survey.serves_own_requests:
                found.append(
                    "disks, throttles, states of brokers: only brokers of Ottla report them"
                )
            found += self.survey.denials
        return found
