"""Every Kafka setting, declared once: name, unit, Kafka key, default, check.

declare.py          declarations of settings: kinds, parsing, and the error of a bad value
roles.py            the roles of a process, and the settings of each role
broker.py           settings of one broker process
balance.py          plan and throttle of a balance in progress
controller.py       settings of one controller process
client.py           settings of producers, consumers and admin clients
metadata_recovery.py    return of clients to their bootstrap addresses
kafka_clients.py    conversion of the keys of Java's clients and librdkafka to client settings
connections.py      numbers and rates of connections that a broker accepts
endpoints.py        listeners and voters: lists of addresses
quorum.py           timeouts of the quorum, and the interval of snapshots
groups.py           coordination of groups, and retention of their offsets
group_overrides.py  settings of one group
share_groups.py     settings of share groups, of the cluster and of one group
share_client.py     settings of a share consumer
share_state.py      settings of the share coordinator, and the log of its state
transactions.py     coordination of transactions, and the log of their state
quotas.py           windows of quotas, and the limits of one entity
offset_reset.py     `auto.offset.reset`
logs.py             level, form and target of a process's log messages
dynamic.py          checks of settings that are changed while the cluster runs
resources.py        types of resources and of changes, by Kafka's numbers
kafka_keys.py       Kafka's keys that have no effect in Ottla
field_names.py      suggestion of a config's field for an unknown argument
misspelt.py         suggestion of a valid key for a misspelt one
security/           encryption, authentication, authorization
storage/            topics, log directories, compaction
telemetry/          metrics, traces, clients' telemetry
"""
