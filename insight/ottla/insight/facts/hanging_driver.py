"""Reads open transactions of partitions, and finds those that no coordinator will end."""

from collections.abc import Iterable

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_transactions import TransactionDescription
from ottla.insight.facts.hanging import OpenTransaction, hanging_of
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ProducerId


async def owners_of(
    admin: Admin, open_: Iterable[OpenTransaction]
) -> dict[ProducerId, list[TransactionDescription]]:
    """Return the transaction coordinators' descriptions of open transactions, by producer id.
    Producers that no coordinator knows are absent."""
    ids = {one.producer.producer_id for one in open_}
    owners: dict[ProducerId, list[TransactionDescription]] = {}
    if not ids:
        return owners
    for listed in await admin.list_transactions(producer_ids=sorted(ids)):
        try:
            owner = await admin.describe_transaction(listed.transactional_id)
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue  # The transactional id has expired since it was listed.
        owners.setdefault(owner.producer_id, []).append(owner)
    return owners


async def without_coordinator(
    admin: Admin, open_: Iterable[OpenTransaction]
) -> list[OpenTransaction]:
    """Return the open transactions that no transaction coordinator knows, and which therefore
    hang."""
    found = list(open_)
    return hanging_of(found, await owners_of(admin, found))
