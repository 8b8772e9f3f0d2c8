"""Nemeses: faults of a cluster of real processes, each reported in JSON and healed again.

nemesis.py     base class of nemeses, with the choice of victims
endings.py     processes killed, paused, restarted
partitions.py  nodes cut off from each other
links.py       packet loss, low bit rates, resets
power.py       power cuts, which lose unflushed data
damage.py      full disks, flipped bits
membership.py  controllers that leave the voters and join them again
quorum_damage.py  damaged files of a stopped controller
clock.py       wall clocks that jump
mixer.py       several nemeses at once, in changing subsets
stores.py      killed, paused and slowed object stores
table.py       the nemeses by name
"""
