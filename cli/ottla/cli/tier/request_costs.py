"""Number of requests, and cost in money, of segments in an object store. Pure.

The default prices, in US dollars, apply to S3 Standard in us-east-1 (as of 2026-08). Deletions are
free there. Transfer out of the region is not included.
"""

from typing import NamedTuple

from ottla.storage.tier.bucket_driver import RANGE_BYTES
from ottla.storage.tier.obstore_driver import PART_BYTES

GIB = 1 << 30
DOLLARS_PER_GIB_MONTH = 0.023
DOLLARS_PER_1000_PUTS = 0.005
DOLLARS_PER_1000_GETS = 0.0004
REQUESTS_OF_SMALL_OBJECTS = 2
"""Number of requests that upload, or read, the two small objects of a segment: its indexes and its
manifest."""
MULTIPART_REQUESTS = 2
"""Number of additional requests when an object is uploaded in several parts: one begins the upload
and one completes it."""


class Prices(NamedTuple):
    """Prices of an object store, in any currency: of a GiB for a month, of 1000 PUT requests and of
    1000 GET requests."""

    gib_month: float = DOLLARS_PER_GIB_MONTH
    thousand_puts: float = DOLLARS_PER_1000_PUTS
    thousand_gets: float = DOLLARS_PER_1000_GETS


class Cost(NamedTuple):
    """Cost of segments in an object store: their number and size in bytes, the PUT requests that
    uploaded them, and the GET requests that read them once."""

    segment_count: int = 0
    size_bytes: int = 0
    put_count: int = 0
    get_count: int = 0

    def plus(self, *, log_bytes: int, size_bytes: int) -> "Cost":
        """Return the cost with one more segment. `log_bytes` is the size of the segment's records,
        and `size_bytes` the size of all its objects, in bytes."""
        return Cost(
            self.segment_count + 1,
            self.size_bytes + size_bytes,
            self.put_count + puts_of(log_bytes),
            self.get_count + gets_of(log_bytes),
        )

    def month(self, prices: Prices) -> float:
        """Return the price of storing the segments for a month."""
        return self.size_bytes / GIB * prices.gib_month

    def upload(self, prices: Prices) -> float:
        """Return the price of the requests that uploaded the segments."""
        return self.put_count / 1000 * prices.thousand_puts

    def reading(self, prices: Prices) -> float:
        """Return the price of the requests that read all segments once."""
        return self.get_count / 1000 * prices.thousand_gets


def puts_of(log_bytes: int) -> int:
    """Return the number of PUT requests that upload a segment with `log_bytes` bytes of records."""
    parts = -(-log_bytes // PART_BYTES)
    return (1 if parts <= 1 else parts + MULTIPART_REQUESTS) + REQUESTS_OF_SMALL_OBJECTS


def gets_of(log_bytes: int) -> int:
    """Return the number of GET requests that read a segment with `log_bytes` bytes of records."""
    return max(1, -(-log_bytes // RANGE_BYTES)) + REQUESTS_OF_SMALL_OBJECTS
