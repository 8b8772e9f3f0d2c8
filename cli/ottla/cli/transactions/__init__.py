"""Commands that list, explain and abort transactions.

txn.py      `ottla txn`: list, describe, producers, find-hanging, abort
"""
