"""Settings of the transaction coordinator, and of the topic in which it stores the states of
transactions."""

from ottla.model.limits import MIB
from ottla.model.settings.declare import SettingKind, setting
from ottla.model.values import frozen


@frozen(kw_only=True)
class TransactionConfig:
    """Settings of the transaction coordinator. All brokers should have the same values."""

    timeout_ms_max: int = setting(
        900_000,
        key="transaction.max.timeout.ms",
        at_least=1,
        doc="Maximum timeout that a producer may request for its transactions. READ_COMMITTED "
        "consumers wait for this time if the producer of a transaction has died.",
    )
    id_expiration_ms: int = setting(
        7 * 24 * 3_600_000,
        key="transactional.id.expiration.ms",
        at_least=1,
        doc="Time for which a transactional id is remembered after its last transaction.",
    )
    abort_check_interval_ms: int = setting(
        10_000,
        key="transaction.abort.timed.out.transaction.cleanup.interval.ms",
        at_least=1,
        doc="Interval between checks of open transactions for their timeout.",
    )
    expiry_check_interval_ms: int = setting(
        3_600_000,
        key="transaction.remove.expired.transaction.cleanup.interval.ms",
        at_least=1,
        doc="Interval between checks for expired transactional ids.",
    )
    is_two_phase_commit_enabled: bool = setting(
        False,
        key="transaction.two.phase.commit.enable",
        has_no_effect_yet="transactions that another resource manager ends are refused",
        no_effect_values=("true",),
        doc="Whether producers may leave the completion of their transactions to another resource "
        "manager (KIP-939).",
    )
    state_log_replication_factor: int = setting(
        3,
        key="transaction.state.log.replication.factor",
        kind=SettingKind.SHORT,
        at_least=1,
        doc="Replication factor of the topic with the state of transactions.",
    )
    state_log_min_isr: int = setting(
        2,
        key="transaction.state.log.min.isr",
        at_least=1,
        doc="Number of replicas of the transaction state that must be in sync.",
    )
    state_log_num_partitions: int = setting(
        50,
        key="transaction.state.log.num.partitions",
        at_least=1,
        doc="Number of partitions of the topic with the state of transactions.",
    )
    state_log_segment_bytes: int = setting(
        100 * MIB,
        key="transaction.state.log.segment.bytes",
        at_least=MIB,
        doc="Segment size of the topic with the state of transactions.",
    )
    state_log_load_buffer_bytes: int = setting(
        5 * MIB,
        key="transaction.state.log.load.buffer.size",
        at_least=1,
        has_no_effect_yet="the state is read in parts of 64 KiB, between which other requests are "
        "served",
        doc="Bytes of the transaction state that are read at once when it is loaded.",
    )
