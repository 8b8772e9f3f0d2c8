"""Who everyone is, and what each may do.

acl.py                    `ottla acl`: list, create, delete, explain
acl_words.py              what a command line names, and how entries are shown (pure)
acl_explanation.py        decides as a broker does, and shows by which entry
doctor_certificates.py    `ottla doctor certificates`
certificate_findings.py   judges them (pure)
doctor_listeners.py       `ottla doctor listeners`
listener_findings.py      judges what they let in (pure)
"""
