"""Commands that manage users and delegation tokens.

user.py       `ottla user`: list, add, delete
token.py      `ottla token`: create, list, renew, end
password.py   reads a password
"""
