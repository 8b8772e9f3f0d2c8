"""Parts of a producer that implement transactions.

transaction_flow.py            state machine of a producer's transactions (pure)
transaction_messages.py        parts of requests, and error codes in responses (pure)
transactional_accumulator.py   the buffered records of one transaction at a time (pure)
coordinator_calls.py           requests to coordinators, one at a time, with retries
prepared_transactions.py       completion of transactions that another process has prepared
producer_transactions.py       start, use and end of a producer's transactions
"""
