"""Which limit holds for a client: the most specific of eight levels, and how use is counted."""

from random import Random

import pytest

from ottla.model.quotas.quota_limits import LEVELS, ClientEntity, Limits, QuotaEntity, limits_of

ANNA = QuotaEntity("user", False, "anna")
ANY_USER = QuotaEntity("user", True, "")
LOADER = QuotaEntity("client-id", False, "loader")
ANY_CLIENT = QuotaEntity("client-id", True, "")

BY_PRECEDENCE: list[tuple[ClientEntity, tuple[str, str]]] = [
    ((LOADER, ANNA), ("anna", "loader")),
    ((ANY_CLIENT, ANNA), ("anna", "loader")),
    ((ANNA,), ("anna", "")),
    ((LOADER, ANY_USER), ("anna", "loader")),
    ((ANY_CLIENT, ANY_USER), ("anna", "loader")),
    ((ANY_USER,), ("anna", "")),
    ((LOADER,), ("", "loader")),
    ((ANY_CLIENT,), ("", "loader")),
]


@pytest.mark.parametrize("step", range(8))
def test_the_most_specific_limit_wins(step: int) -> None:
    limits = Limits(
        {entity: float(at) for at, (entity, _) in enumerate(BY_PRECEDENCE) if at >= step}
    )

    match = limits.find("anna", "loader")

    assert match is not None
    assert match.limit == step
    assert match.level == LEVELS[step]
    assert match.counted_as == BY_PRECEDENCE[step][1]


def test_others_have_no_limit() -> None:
    limits = Limits({(LOADER, ANNA): 1.0, (ANNA,): 2.0})

    assert limits.find("bert", "loader") is None
    other = limits.find("anna", "other")
    assert other is not None
    assert other.limit == 2


def test_what_was_looked_at_is_named_in_order() -> None:
    limits = Limits({(ANNA,): 2.0})

    assert list(limits.considered("anna", "loader")) == [
        (entity, 2.0 if entity == (ANNA,) else None) for entity, _ in BY_PRECEDENCE
    ]


def test_only_the_limits_of_one_key_are_taken() -> None:
    quotas: dict[ClientEntity, dict[str, float]] = {
        (ANNA,): {"producer_byte_rate": 7.0},
        (LOADER,): {"consumer_byte_rate": 8.0},
    }

    limits = limits_of(quotas, "producer_byte_rate")

    assert limits
    assert limits.find("bert", "loader") is None
    assert not limits_of(quotas, "request_percentage")


def test_limits_that_changed_are_those_made_of_all() -> None:
    random = Random(20)
    parts = [None, ANNA, ANY_USER], [None, LOADER, ANY_CLIENT]
    entities: list[ClientEntity] = [
        tuple(sorted(part for part in (user, client_id) if part is not None))
        for user in parts[0]
        for client_id in parts[1]
        if user or client_id
    ]
    limits, plain = Limits(), dict[ClientEntity, float]()
    for step in range(300):
        changes: dict[ClientEntity, float | None] = {
            entity: random.choice([None, float(step)]) for entity in random.sample(entities, 3)
        }
        before = dict(limits.by_entity)
        changed = limits.changed(changes)
        assert limits.by_entity == before, "the limits in force are left as they are"
        limits = changed
        for entity, limit in changes.items():
            plain.pop(entity, None)
            if limit is not None:
                plain[entity] = limit
        fresh = Limits(plain)
        assert limits.by_entity == plain
        assert bool(limits) == bool(plain)
        for client in (("anna", "loader"), ("anna", "x"), ("bert", "loader"), ("bert", "x")):
            assert limits.find(*client) == fresh.find(*client)
