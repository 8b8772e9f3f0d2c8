"""The fuzz targets, one domain per file.

frames.py     a client's bytes, from the frame to the response of a small real broker
messages.py   every request, response and record in every version
answers.py    responses of a hostile broker to every call of Ottla's client
batches.py    record batches, codecs, old message sets
recovery.py   a partition's directory
files.py      small files and file names, .properties
metadata.py   metadata records and the image they result in, snapshots, control records
groups.py     records of groups, embedded subscriptions, regular expressions
peers.py      gRPC between nodes, raft's core
logins.py     SASL frames, SCRAM's messages, tokens
acls.py       ACLs and their filters, and decisions of the authorizer
principals.py certificates, and the users that rules map them to
pushes.py     telemetry pushes of clients
decisions.py  requests to the active controller
"""
