"""Commands on consumer and share groups.

group.py        `ottla group`: list, describe, members, lag, reset, offset-delete, delete
share.py        `ottla share`: list, describe, offsets, reset, offset-delete, delete
group_reset.py  the reset of offsets
offset_delete.py `ottla group offset-delete`
reset_plans.py  plans of a reset as CSV, durations, names of partitions
"""
