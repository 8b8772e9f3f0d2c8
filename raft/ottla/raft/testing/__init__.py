"""Quorums in memory, for tests of the core and of whatever is built on it.

- `memory_log`: a LogView whose flushed part alone survives a crash
- `member`: one replica: a core, its memory log, and a driver that performs its effects
- `world`: members on virtual time and a network that loses, repeats, delays and parts
- `solo`: one member alone with its test, which plays the others
- `narrator`: what happens, as text
- `seeded_rng`: chance from one seed
- `invariants`: what must hold after every step of any of them
"""
