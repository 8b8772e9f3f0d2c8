"""Fuzzing of code that reads untrusted bytes, with limits on its time and memory.

target.py          a target: a reader, its valid inputs, its limits
targets/           the targets, one domain per file
table.py           the targets by name
judge.py           judges an input: unexpected exceptions, too much time or memory
mutate.py          makes new inputs from old ones
plain_driver.py    fuzzing by mutation alone, part of every test run
atheris_driver.py  coverage-guided fuzzing, in a process of its own
hunt.py            fuzzing of one target with either driver, and its figures
kept.py            inputs worth keeping, as text files
mini_broker.py     a broker's core with a single connection
answering.py       a client's connection to a broker in memory: requests in, responses out
hostile_broker.py  a broker that sends arbitrary responses to Ottla's client
one_broker.py      a broker of one topic and one group with correct, late or missing responses
chance.py          the protocol `Rng`, implemented with Python's `Random`
"""
