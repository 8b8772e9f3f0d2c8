"""Raft quorums in memory, for model checking, fuzzing, and tests of raft and of its users.

memory_log.py   a LogView that loses unflushed entries when it crashes
member.py       one replica: a core, its memory log, and a driver that performs its effects
world.py        members on virtual time and a network that loses, repeats, delays and partitions
solo.py         one member alone; its caller plays the other members
narrator.py     effects and messages as text
invariants.py   the invariants of raft, checked after every step
"""
