"""The clients that perform the workloads' operations: Ottla's own client, confluent-kafka, and
Kafka's Java client.

completions.py      outcomes of operations: certain or unknown
renewable.py        resources that crash and are opened again
login.py            login of all clients to a secure cluster
topics.py           creation and deletion of a workload's topics

own.py              base of the load clients that use Ottla's own client
own_sending.py      outcomes of sends, from the delivery reports of Ottla's client
own_*.py            each workload, performed with Ottla's client

confluent.py        base of the load clients that use confluent-kafka, in threads
confluent_sending.py    outcomes of sends, from the delivery reports of confluent-kafka
confluent_*.py      each workload, performed with confluent-kafka

java_share.py       the share workload, performed with Kafka's Java client
"""
