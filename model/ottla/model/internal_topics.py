"""Topics in which brokers store their own state, under Kafka's names.

Clients may read these topics, but may neither write to them nor delete records from them. After a
failover, a coordinator reads its topic and must find only records that coordinators wrote. Kafka
exempts one client id from this rule. Ottla does not, because a client chooses its client id itself.
"""

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"

INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC))
