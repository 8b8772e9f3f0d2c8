"""Commands on users.

user.py       `ottla user`: list, add, delete
password.py   where a password comes from
"""
