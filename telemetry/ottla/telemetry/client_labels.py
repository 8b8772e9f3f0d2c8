"""Who pushed: what a broker knows of a client, under the names that its metrics are labelled with.

A client's word for any of these names is dropped: only what the broker saw itself counts.
"""

from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import uuid_text
from ottla.model.unicode_text import encodable

LABEL_LENGTH_MAX = 256
"""Characters of a label that are kept: a client chooses its id freely, and it stands on every
series.  Lower mixes up what people tell apart, higher lets one client swell every scrape."""


class ClientLabels(NamedTuple):
    """One client instance, as the broker that it pushed to knows it (KIP-714's labels)."""

    client_instance_id: UUID
    client_id: str
    principal: str
    software_name: str
    software_version: str
    source_address: str
    broker_id: int

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Return the labels as texts, in the order of `LABEL_NAMES`.

        Long ones are cut, and what UTF-8 cannot encode is replaced.
        """
        values = (
            uuid_text(self.client_instance_id),
            self.client_id,
            self.principal,
            self.software_name,
            self.software_version,
            self.source_address,
            str(self.broker_id),
        )
        cut = [encodable(value[:LABEL_LENGTH_MAX]) for value in values]
        return tuple(zip(LABEL_NAMES, cut, strict=True))


LABEL_NAMES = (
    "client_instance_id",
    "client_id",
    "principal",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "broker_id",
)
"""The names of the labels, the same on every way out."""

assert len(LABEL_NAMES) == len(ClientLabels._fields)
