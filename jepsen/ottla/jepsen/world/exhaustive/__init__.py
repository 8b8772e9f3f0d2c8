"""Engine D: every course of events of a small case, one subject a file.

copies.py      copies of a core and what it stands on, and what makes two of them the same
search.py      every course of a case, shortest first, with state hashing
raft_cases.py  the quorum of three, in small cases
"""
