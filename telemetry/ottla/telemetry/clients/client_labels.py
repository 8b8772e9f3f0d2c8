"""Labels of a client's metrics: the client's identity as the broker knows it. Pure.

If a client sends an attribute with the name of one of these labels, the attribute is dropped.
"""

from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import uuid_text
from ottla.model.unicode_text import encodable

LABEL_LENGTH_MAX = 256
"""Maximum length, in characters, of the value of a label that identifies a client in its metrics.
Longer values are cut.

A client chooses its id freely, and every series contains the id. With a lower limit, different
clients may get equal labels. With a higher limit, one client can enlarge every scrape.
"""


class ClientLabels(NamedTuple):
    """Identity of one client instance, as known to the broker to which it pushes metrics (labels of
    KIP-714)."""

    client_instance_id: UUID
    client_id: str
    principal: str
    software_name: str
    software_version: str
    source_address: str
    broker_id: int

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Return the client's labels as (name, value), in the order of `LABEL_NAMES`.

        Long values are cut, and characters that UTF-8 cannot encode are replaced.
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
"""Names of the labels that identify a client in its metrics. They are the same for all
exporters."""

assert len(LABEL_NAMES) == len(ClientLabels._fields)
