"""Topics in which brokers store their own state, by Kafka's names.

Clients may read these topics like any other topic, but may neither write to them nor delete records
from them, because after a failover a coordinator must find only records that coordinators wrote.
Kafka exempts one client id from that rule. A client chooses its id itself, so Ottla has no such
exception.
"""

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"

INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC))
