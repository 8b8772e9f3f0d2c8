"""Topics, and the brokers that replicate and lead their partitions.

topics.py            creation, growth and deletion of topics
placement.py         choice of brokers for the replicas of new partitions
assignments.py       checks of manual assignments, and the initial state of partitions
partition_change.py  next state of one partition: ISR, eligible replicas, leader
elections.py         elections of many partitions when brokers leave or return, or by request
partitions.py        AlterPartition and AssignReplicasToDirs
reassignments.py     moves of partitions to other brokers
balance_plan.py      the plan of a balance in the metadata log, and its throttle
balance_moves.py     moves of the stored balance plan, started a few at a time
"""
