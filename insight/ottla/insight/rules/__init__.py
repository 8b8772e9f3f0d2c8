"""Rules that derive causes from facts. Pure; missing facts never raise an error.

health.py        reasons why a cluster is unhealthy, each with its remedy
denial.py        causes of a denied operation
throttle.py      limits that slow down clients and replicas
lag.py           causes of a group's lag
unavailable.py   partitions without leader or below min.insync.replicas; unreachable brokers
rebalance.py     members that hold up an assignment
disk.py          full and offline log directories
transaction.py   open and hanging transactions
delivery.py      records that a share group does not deliver
summary.py       the rules of the answers "health" and "slow", which combine the others
top.py           the busiest clients, topics, partitions and brokers
plan.py          plans of changes as dry runs
draining.py      condition of draining brokers
removal_delays.py  reasons that delay the removal of a broker
voter_changes.py conditions of changes of the quorum's voters
alert_rules.py   rules for Prometheus, with the command that helps
traffic_rates.py rates of traffic between two samples
config_losses.py changes of settings that delete records or put them at risk
retention_findings.py    topics whose retention is delayed
listener_findings.py     security of listeners
certificate_findings.py  validity of certificates
acl_text.py      ACLs and operations as text
"""
