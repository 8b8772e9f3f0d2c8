"""Special timestamps of ListOffsets, which stand for a position in the log instead of a time.

The values are Kafka's (`ListOffsetsRequest`, KIP-734, KIP-405, KIP-1005, KIP-1023).
"""

LATEST = -1
"""The end of the log: the high watermark or, for READ_COMMITTED, the last stable offset."""
EARLIEST = -2
"""The log start offset: the first offset that consumers can read."""
MAX_TIMESTAMP = -3
"""The record with the highest timestamp."""
EARLIEST_LOCAL = -4
"""The first offset on the leader's own disk."""
LATEST_TIERED = -5
"""The last offset in remote storage."""
EARLIEST_PENDING_UPLOAD = -6
"""The first offset that is not in remote storage yet."""
