"""Commands on users.

user.py       `ottla user`: list, add, delete
token.py      `ottla token`: create, list, renew, end
password.py   where a password comes from
"""
