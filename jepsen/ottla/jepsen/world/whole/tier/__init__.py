"""Topics in tiered storage on a simulated cluster, whose object store fails, too.

tiered.py           test subject with topics that lose nothing: start here
expiring.py         test subject with retention, unclean elections and deleted topics
forked.py           test subject with former leaders that lead again
day.py              test subject of hours, with a small disk and outages of an hour
expiring_clients.py clients of that subject
written_records.py  all records that leaders have written, by offset and leader epoch (pure)
lineage_watch.py    checks of both tiers during a run
bucket_check.py     checks of the object store at the end of a run
"""
