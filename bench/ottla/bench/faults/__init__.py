"""`ottla bench steady`, a load for a cluster under faults; and a measurement of pauses for `ottla
bench failover`.

steady.py    a steady producer that records every response: start here
ledger.py    the file with all responses
audit.py     verifies that every acknowledged record is stored once and in order
metadata_pause.py  longest pause of metadata changes while the active controller is killed
timeline.py  acknowledgements second by second: table, picture, longest gaps
"""
