"""Interface of a run: many records of one partition that encode themselves batch by batch. Programs
with whole columns of values implement it.

Pure. The producer decides how many bytes fit into a batch, and the run encodes as many records as
fit.
"""

from typing import NamedTuple, Protocol

from ottla.wire.batch import Buffer


class EncodedRecords(NamedTuple):
    """Encoded records of a run, for one batch."""

    body: Buffer
    record_count: int


class RecordRun(Protocol):
    """A run of records with one timestamp, in the order in which they are to be written."""

    @property
    def next_bytes(self) -> int:
        """Maximum size of the next record, in bytes. 0 if no record is left."""

    @property
    def largest_bytes(self) -> int:
        """Maximum size of any of the records, in bytes."""

    def take(self, room_bytes: int, first_delta: int, timestamp_delta: int) -> EncodedRecords:
        """Encode and return as many records as fit into `room_bytes`, and at least one record.

        `first_delta` is the offset delta of the first record in its batch. `timestamp_delta` is the
        difference between the timestamp of these records and the timestamp of the batch.
        """
