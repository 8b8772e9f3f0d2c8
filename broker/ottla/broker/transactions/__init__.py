"""Transactions: the coordinator of those whose partition of `__transaction_state` is led here.

transaction.py          one transactional id: what is known of it, and every step it may take
transaction_rules.py    what a request may do with it: start here
transaction_records.py  the records of `__transaction_state`, in Kafka's formats
"""
