"""Access to the console: users, roles, sessions and protection of forms.

gate.py            the protocol of gates, and the gate without a login
key_gate.py        a key in the printed address
login_gate.py      users of the cluster sign in by SCRAM
proxy_gate.py      a proxy signs users in
session_cookies.py cookies of sessions
sessions.py        the table of sessions (pure)
login_attempts.py  limit of failed logins (pure)
roles.py           roles of users (pure)
hosts.py           host names of the console, and foreign ones (pure)
form_tokens.py     tokens against forged forms (pure)
"""
