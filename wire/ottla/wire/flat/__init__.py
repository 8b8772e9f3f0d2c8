"""Requests for one topic, decoded and answered without message objects.

flat_produce.py  Produce of one batch
flat_fetch.py    Fetch of one partition
flat_commit.py   OffsetCommit of one topic
"""
