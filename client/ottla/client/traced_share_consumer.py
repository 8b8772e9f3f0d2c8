"""Share consumer that creates OpenTelemetry spans for the processing of records."""

from contextlib import AbstractContextManager

from ottla.client.share.share_records import ShareRecord
from ottla.client.share_consumer import ShareConsumer
from ottla.client.traced_consumer import process_span


class TracedShareConsumer(ShareConsumer):
    """Share consumer class that is used if the program has set an OpenTelemetry provider."""

    def processing(self, record: ShareRecord) -> AbstractContextManager[None]:
        """Return a context manager that runs its block in a span, which is a child of the span that
        sent the record."""
        return process_span(record.data, self._config.client_id, self._config.group_id)
