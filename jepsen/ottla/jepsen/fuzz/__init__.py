"""Fuzzing: readers of bytes under fire, and what they may cost.

target.py          what a target is: a reader, its good inputs, its bounds
targets/           the targets, one domain a file
table.py           all targets by name
judge.py           judges an input: what escaped, what took too long or too much memory
mutate.py          makes new inputs of old ones
plain_driver.py    fuzzes by mutation alone: every test run
atheris_driver.py  fuzzes by coverage, in a process of its own
hunt.py            one target's hunt, by either driver, as figures
kept.py            inputs worth keeping, as text files
mini_broker.py     a broker's core behind one connection
coordinating_broker.py  the same with groups whose records are in the log
answering.py       a client's connection to a broker in memory: requests in, answers out
hostile_broker.py  a broker that answers what it likes, behind our client
one_broker.py      a broker of one topic and one group that answers well, late or never
chance.py          the seam of chance over a generator
"""
