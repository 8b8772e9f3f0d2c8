"""Commands on consumer and share groups.

group.py        `ottla group`: list, describe, members, lag, reset, offset-delete, delete
all_lags.py     the lag of all groups, in records and in seconds
first_unread.py the age of the first record that was not consumed
share.py        `ottla share`: list, describe, offsets, reset, offset-delete, delete
group_reset.py  the reset of offsets
group_view.py   a group of either protocol and its lag, as tables and JSON
offset_delete.py `ottla group offset-delete`
reset_plans.py  plans of a reset as CSV, durations, names of partitions
"""
