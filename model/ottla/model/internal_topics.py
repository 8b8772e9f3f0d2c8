"""Topics the brokers keep their own state in, by Kafka's names.

Clients read them as any other, and neither write to them nor cut them: what a coordinator finds
there after a failover is what coordinators wrote.  Kafka lets one client id past that rule; a
client chooses its id itself, so here there is no such door.
"""

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"

INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC))
