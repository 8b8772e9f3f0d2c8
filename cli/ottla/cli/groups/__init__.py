"""Commands that show and change consumer groups and share groups.

group.py        `ottla group`: list, describe, members, lag, remove-member, reset,
                offset-delete, delete
share.py        `ottla share`: list, describe, offsets, reset, offset-delete, delete
remove_member.py  `ottla group remove-member`
group_reset.py  `ottla group reset` and `ottla share reset`
offset_delete.py `ottla group offset-delete`
reset_plans.py  parses and formats plans of a reset (pure)
share_delivery_view.py  undelivered records of a share group, by reason
share_peek.py   `ottla share peek`: records in flight
share_redrive.py  `ottla share redrive`: moves dead letters back
redrive_options.py  options of `ottla share redrive`
"""
