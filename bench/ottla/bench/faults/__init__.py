"""`ottla bench steady`: a load for a cluster under faults.

steady.py    a steady producer that records every response: start here
ledger.py    the file with all responses
audit.py     verifies that every acknowledged record is stored once and in order
timeline.py  acknowledgements second by second: table, picture, longest gaps
"""
