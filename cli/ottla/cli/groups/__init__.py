"""Commands on consumer and share groups.

group.py        `ottla group`: list, describe, members, lag, remove-member, reset,
                offset-delete, delete
share.py        `ottla share`: list, describe, offsets, reset, offset-delete, delete
remove_member.py  `ottla group remove-member`
group_reset.py  the reset of offsets
offset_delete.py `ottla group offset-delete`
reset_plans.py  plans of a reset as CSV, durations, names of partitions
share_delivery_view.py  why records of a share group are not delivered now
share_peek.py   `ottla share peek`: records in flight
share_redrive.py  `ottla share redrive`: moves dead letters back
redrive_options.py  its options
"""
