"""Authorization of clients, decided before the handler of a request is called.

`wire/apis` declares the operations that each API needs; `model/authorizer` decides.

authorization.py  the authorizer of a broker, and the gates that requests pass: start here
gates.py          the gate of each API
produce_gate.py   the gate of Produce, the most frequent request
permissions.py    cached permissions of a connection's client
conditions.py     the conditions under which a request needs an operation
questions.py      permission checks by handlers, for checks that a gate cannot make
"""
