"""The targets, one domain a file.

frames.py     a client's bytes, from the frame to the answer of a small real broker
messages.py   every request, response and record in every version
answers.py    answers of a hostile broker, to every call of our client
batches.py    record batches, codecs, message sets of old
recovery.py   a partition's directory
files.py      small files and file names, .properties
metadata.py   metadata records and their fold, snapshots, control records
groups.py     records of groups, members' words, regular expressions
peers.py      gRPC between nodes, raft's core
logins.py     SASL frames, SCRAM's messages, tokens
acls.py       entries and filters of ACLs, and decisions by them
principals.py certificates, and the users that rules make of them
decisions.py  requests as the active controller decides them
"""
