"""Commands on groups of consumers.

group.py        `ottla group`: list, describe, reset, delete
group_reset.py  the reset of committed offsets
group_view.py   a group of either protocol and its lag, as tables and JSON show them
"""
