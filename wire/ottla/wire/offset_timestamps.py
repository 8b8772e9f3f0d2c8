"""Special timestamps of ListOffsets, which denote a position in the log instead of a time.

The values are Kafka's (`ListOffsetsRequest`, KIP-734, KIP-405, KIP-1005, KIP-1023).
"""

LATEST = -1
"""Special timestamp for the end of the log: the high watermark or, for READ_COMMITTED, the last
stable offset."""
EARLIEST = -2
"""Special timestamp for the log start offset: the first offset that consumers can read."""
MAX_TIMESTAMP = -3
"""Special timestamp for the record with the highest timestamp in the log."""
EARLIEST_LOCAL = -4
"""Special timestamp for the first offset on the leader's own disk."""
LATEST_TIERED = -5
"""Special timestamp for the last offset in remote storage."""
EARLIEST_PENDING_UPLOAD = -6
"""Special timestamp for the first offset that is not in remote storage yet."""
