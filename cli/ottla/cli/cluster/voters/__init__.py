"""`ottla quorum`, except for its verb status: the voters, their registrations, and the log.

voter_requests.py            `ottla quorum add | remove | replicas`
voter_replacement.py         `ottla quorum replace`
controller_registrations.py  `ottla quorum unregister`
quorum_log.py                `ottla quorum log`
metadata_snapshot.py         `ottla quorum snapshot`
"""
