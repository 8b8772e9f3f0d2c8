"""Commands for ACLs, certificates and listeners.

acl.py                    `ottla acl`: list, create, delete, explain
acl_words.py              ACLs on the command line and in tables (pure)
certificates.py           `ottla certificates`: authorities, and certificates that they issue
doctor_certificates.py    `ottla doctor certificates`
"""
