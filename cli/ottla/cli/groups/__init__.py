"""Commands on consumer groups.

group.py        `ottla group`: list, describe, members, lag, reset, delete
group_reset.py  the reset of committed offsets
group_view.py   a group of either protocol and its lag, as tables and JSON
"""
