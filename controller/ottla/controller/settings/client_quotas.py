"""Quotas of users, client ids and IP addresses, set by AlterClientQuotas.

Each entry of a request contains all changes for one entity, and succeeds or fails as a whole.  If a
limit already has the requested value, no record is written.
"""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from ottla.controller.decision import Context, Decision, Draft
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import Record, client_quota_record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.explanations import Explanations
from ottla.model.quotas.quota_limits import QuotaEntity
from ottla.model.settings.quotas import CLIENT_KEYS, IP_KEYS, limit_problem
from ottla.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    OpData,
)
from ottla.wire.messages.alter_client_quotas_request import EntityData as AskedEntity
from ottla.wire.messages.alter_client_quotas_request import EntryData as AskedEntry
from ottla.wire.messages.alter_client_quotas_response import (
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
)

ENTITY_TYPES = ("client-id", "ip", "user")


def alter_client_quotas(
    image: MetadataImage, context: Context, request: AlterClientQuotasRequest
) -> Decision[AlterClientQuotasResponse]:
    """Return the decision on an AlterClientQuotas request, which sets and removes quotas of users,
    client ids and IP addresses."""
    draft = Draft(image)
    explanations = Explanations()
    answers = []
    for entry in request.entries:
        code, message = ErrorCode.NONE, None
        try:
            draft.add(_records(draft.image, entry))
        except RefusedError as refusal:
            code, message = refusal.code, refusal.message
        answers.append(
            EntryData(
                error_code=code,
                error_message=None if message is None else explanations.of(message),
                entity=[
                    EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in sorted(entry.entity, key=lambda part: part.entity_type)
                ],
            )
        )
    if request.validate_only:
        draft = Draft(image)
    return draft.decision(AlterClientQuotasResponse(entries=answers), is_atomic=True)


def _records(image: MetadataImage, entry: AskedEntry) -> list[Record]:
    """Return the metadata records for one entry of an AlterClientQuotas request. Raises
    RefusedError if the entry is invalid."""
    entity = _entity(entry.entity)
    keys = IP_KEYS if entity[0].type == "ip" else CLIENT_KEYS
    in_force: Mapping[str, float] = image.client_quotas.get(entity, {})
    changes: dict[str, float | None] = {}
    for asked in entry.ops:
        changes[asked.key] = _limit(asked, keys)
    return [
        client_quota_record(entity, key, limit)
        for key, limit in changes.items()
        if in_force.get(key) != limit
    ]


def _limit(asked: OpData, keys: frozenset[str]) -> float | None:
    if asked.key not in keys:
        raise _invalid(f"Invalid configuration key {asked.key}")
    if asked.remove:
        return None
    why = limit_problem(asked.key, asked.value)
    if why is not None:
        raise _invalid(why)
    return asked.value


def _entity(parts: Sequence[AskedEntity]) -> tuple[QuotaEntity, ...]:
    if not parts:
        raise _invalid("Invalid empty client quota entity")
    types = [part.entity_type for part in parts]
    for part in parts:
        if part.entity_type not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_name == "":
            raise _invalid(f"Empty {part.entity_type} is not supported")
    if len(set(types)) < len(types):
        raise _invalid("Invalid client quota entity: a type is named twice")
    if "ip" in types:
        if len(types) > 1:
            raise _invalid(
                "Invalid quota entity combination, IP entity should not be combined with User "
                "or ClientId"
            )
        _check_address(parts[0].entity_name)
    return tuple(
        sorted(
            QuotaEntity(part.entity_type, part.entity_name is None, part.entity_name or "")
            for part in parts
        )
    )


def _check_address(name: str | None) -> None:
    """Raise RefusedError for a text that is not an IP address. Host names are not resolved, since
    their addresses may change."""
    if name is None:
        return
    try:
        ip_address(name)
    except ValueError:
        raise _invalid(f"{name} is not an IP address") from None


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, message)
