"""Who does the workloads' operations: our own client, and confluent-kafka beside it.

completions.py      what is certain, and what nobody knows
renewable.py        things that crash and are opened again
login.py            how all of them log in to a secure cluster
topics.py           making a workload's topics, and taking them away

own.py              a load client of our own client
own_sending.py      what its delivery reports mean
own_*.py            the workload of that name by it

confluent.py        a load client of confluent-kafka, in threads
confluent_sending.py    what its delivery reports mean
confluent_*.py      the workload of that name by it
"""
