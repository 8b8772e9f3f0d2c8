"""DescribeClientQuotas: describes the quotas of all entities (users, client ids and IP addresses)
that match a filter."""

from collections.abc import Iterable, Iterator, Mapping

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.quotas.quota_limits import QuotaEntity
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.network.dispatch import RequestContext
from ottla.node.network.steps import Answer, StepPace
from ottla.wire.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from ottla.wire.messages.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

ENTITY_TYPES = frozenset({"user", "client-id", "ip"})

EXACT, DEFAULT, ANY = 0, 1, 2
"""Match types in a component of a DescribeClientQuotas filter: one entity name, the default entity,
or any entity."""


class DescribeClientQuotasApi:
    """Handler of DescribeClientQuotas, versions 0 and 1."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def handle(self, context: RequestContext, request: DescribeClientQuotasRequest) -> Answer:
        """Answer the request with the quotas of every entity (such as a user) that matches all
        components of the filter. If `strict` is set, the response omits entities with further
        components."""
        try:
            wanted = _checked(request.components)
        except RefusedError as refusal:
            return DescribeClientQuotasResponse(
                error_code=refusal.code, error_message=refusal.message, entries=None
            )
        quotas = self._metadata.image.client_quotas
        entries = []
        pace = StepPace()
        for entity, limits in quotas.items():
            if _matches(entity, wanted, is_strict=request.strict):
                entries.append(_entry(entity, limits))
            if pace.is_due():
                yield
        return DescribeClientQuotasResponse(entries=entries)


def _checked(components: Iterable[ComponentData]) -> dict[str, ComponentData]:
    """Return the components of a filter of quota entities, by entity type (such as user). Raises
    RefusedError if the filter contradicts itself."""
    wanted: dict[str, ComponentData] = {}
    for component in components:
        type_ = component.entity_type
        if not type_:
            raise _invalid("Invalid empty entity type.")
        if type_ in wanted:
            raise _invalid(f"Entity type {type_} cannot appear more than once in the filter.")
        if type_ not in ENTITY_TYPES:
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {type_}")
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise _invalid(f"Unknown match type {component.match_type}")
        if (component.match is None) == (component.match_type == EXACT):
            raise _invalid(
                "An exact match needs a name."
                if component.match is None
                else "Only an exact match may have a name."
            )
        wanted[type_] = component
    if "ip" in wanted and len(wanted) > 1:
        raise _invalid(
            "Invalid entity filter component combination, IP filter component should not be used "
            "with user or clientId filter component."
        )
    return wanted


def _matches(
    entity: tuple[QuotaEntity, ...], wanted: Mapping[str, ComponentData], *, is_strict: bool
) -> bool:
    by_type = {part.type: part for part in entity}
    if is_strict and by_type.keys() != wanted.keys():
        return False
    return all(
        type_ in by_type and _part_matches(by_type[type_], component)
        for type_, component in wanted.items()
    )


def _part_matches(part: QuotaEntity, component: ComponentData) -> bool:
    if component.match_type == EXACT:
        return not part.is_default and part.name == component.match
    return component.match_type == ANY or part.is_default


def _entry(entity: tuple[QuotaEntity, ...], limits: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=list(_entity_data(entity)),
        values=[ValueData(key=key, value=limits[key]) for key in sorted(limits)],
    )


def _entity_data(entity: tuple[QuotaEntity, ...]) -> Iterator[EntityData]:
    for part in entity:
        yield EntityData(entity_type=part.type, entity_name=None if part.is_default else part.name)


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, message)
