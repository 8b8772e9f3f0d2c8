"""Faults that are done to a cluster of real processes, each told in JSON and healed again.

nemesis.py     what a nemesis is, and how it chooses its victims
endings.py     processes killed, paused, restarted
partitions.py  nodes cut off from each other
links.py       loss, slowness, resets
power.py       power cuts: what was not flushed is lost
damage.py      disks that are full, bytes that are flipped
quorum_damage.py  files of a stopped controller, damaged
clock.py       wall clocks that jump
mixer.py       several at a time, in turns
table.py       all of them, by name
"""
