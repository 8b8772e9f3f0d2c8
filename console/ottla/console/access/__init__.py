"""Access control of the console: users, roles, sessions and protection of forms.

gate.py            interface of access control, and access without a login
key_gate.py        access by a key in the printed address
login_gate.py      access by login: users of the cluster sign in by SCRAM
proxy_gate.py      access through a proxy that signs users in
session_cookies.py cookies of sessions
sessions.py        the table of sessions (pure)
login_attempts.py  limit of failed logins (pure)
roles.py           roles of users (pure)
hosts.py           host names of the console, and detection of foreign names (pure)
form_tokens.py     tokens against forged forms (pure)
"""
