"""Committed offsets of groups.

offset_store.py        the offsets of one partition of `__consumer_offsets`: start here
committed_offsets.py   table of committed offsets
pending_offsets.py     offsets that wait for the end of their transaction
offset_retention.py    expiration of offsets (KIP-211)
commit_rules.py        checks of the member and epoch in commits and fetches of offsets
offset_apis.py         OffsetFetch, OffsetDelete
offset_commit_api.py   OffsetCommit
topic_commit.py        offsets of one topic that a group commits together
transactional_offsets.py  TxnOffsetCommit
uploaded_offsets.py    copies of the offsets in an object store, for tiered topics
offsets_upload_driver.py  writes these
"""
