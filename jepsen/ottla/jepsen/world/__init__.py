"""The deterministic world: the seams' second implementations, driven by one seed.

rng.py               chance from a seed
disk.py              a disk in memory that forgets, tears and fails on demand
disk_conformance.py  what every Disk promises; the real one passes too
"""
