"""Facts about a cluster, read by admin requests.

cluster_facts.py   the facts of one answer as a value
facts_driver.py    gathers them, each with a timeout
survey_driver.py   quorum, brokers and partitions, as every node reports them
partition_totals_driver.py  numbers of partitions, and the partitions with a problem
acl_facts.py       ACLs and authorizer settings, and decisions based on them
stored_plan.py     the balance plan in progress
replica_assignments.py   replicas of partitions, and reassignments in progress (pure)
reassignments_driver.py  reassignments in progress and replicas in sync
cluster_load_driver.py   input of the balance planner: loads of brokers and partitions
removal_driver.py  moves that empty a broker, and the reasons that prevent them
group_view.py      a group of consumers with its members and committed offsets
member_removal_driver.py  removal of members from a group
lags_driver.py     lag of groups in records and in seconds
page_lags_driver.py  lag of the groups and partitions of one page
first_unread_driver.py  age of the first record that was not consumed
log_dirs_driver.py log directories of several brokers, requested concurrently
traffic_driver.py  counters of all brokers at one time
changes_driver.py  the most recent changes of the metadata, in words
group_kinds.py     kinds of groups in words (pure)
pushed_series.py   metrics that clients have pushed, as series (pure)
listeners_driver.py  listeners as a client sees them: encryption, certificate, login
hanging.py         choice of the open transactions that no coordinator will end (pure)
hanging_driver.py  open transactions, and their coordinators
offsets.py         offsets of partitions by timestamp
topics/            retention and tiered storage of topics
"""
