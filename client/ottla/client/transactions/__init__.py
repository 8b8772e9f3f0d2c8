"""What a producer's transactions are made of.

transaction_flow.py            a producer's place in its transactions, what answers mean (pure)
transaction_messages.py        what requests name, and the codes in their answers (pure)
transactional_accumulator.py   the records of one transaction at a time (pure)
coordinator_calls.py           one request after the other to coordinators, until answered
prepared_transactions.py       ends in one process what another one has prepared
producer_transactions.py       the requests to the coordinators
"""
