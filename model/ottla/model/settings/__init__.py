"""Every Kafka setting, declared once: name, unit, Kafka key, default, check.

declare.py          what a declaration is; reading texts into values; the sentence a bad value gets
endpoints.py        listeners, voters: settings that are lists of addresses
security.py         settings for protection: served, else refused, never ignored
sasl.py             who the clients of a listener must be, and how a broker logs in
authorizer.py       what clients may do
oauth.py            which tokens brokers take, and where they come from
delegation_tokens.py  whether there are delegation tokens, and how long they hold
jaas.py             the login modules of Kafka's own files
tls.py              TLS of a listener: certificates, trust, what is negotiated
tls_ciphers.py      the cipher suites that may be named
topic.py            settings of one topic, with the broker key that gives each its default
throttled_replicas.py  replicas of a topic whose replication is throttled
quorum.py           how fast a quorum notices things, and when it writes snapshots
groups.py           how groups are coordinated, and how their offsets are kept
transactions.py     how transactions are coordinated, and how their state is kept
group_overrides.py  what one group may have for itself
cleaner.py          how compacted logs are cleaned
client_metrics.py   what clients are asked to report
exporters.py        where metrics go: collectors, a topic, plug-ins
telemetry.py        whether, and how much of it at once
cordoned.py         log directories that take no new replica
broker.py           settings of one broker process
controller.py       settings of one controller process
client_security.py  how clients log in
client.py           settings of producers and consumers
resources.py        what settings belong to, and how one is changed, by number
dynamic.py          checks for settings that are changed while the cluster runs
"""
