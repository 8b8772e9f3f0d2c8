"""Authorisation: what the client of a request may do, before its handler sees it.

The rows of `wire/api_permissions` say what each API needs; `model/authorizer` decides.

authorization.py   the authorizer of a broker, and the way of each request past it: start here
questions.py       what handlers ask: parts of answers, options, lists that are filtered
permissions.py     what the client of a connection may do, each decided once
gates.py           a gate for each row of the table
produce_gate.py    the gate of Produce, whose requests are most
conditions.py      in which requests of an API an operation is needed
elements.py        the parts of requests that are refused one by one, and their answers
refusals.py        the answer to a request that is refused as a whole
"""
