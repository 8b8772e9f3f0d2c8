"""Names of subjects."""

import pytest

from ottla.client.registry.subjects import record_name, topic_name, topic_record_name


def test_strategies_name_subjects_as_confluents_serializers_do() -> None:
    assert topic_name("orders", "key", "shop.Order") == "orders-key"
    assert record_name("orders", "key", "shop.Order") == "shop.Order"
    assert topic_record_name("orders", "value", "shop.Order") == "orders-shop.Order"


@pytest.mark.parametrize("strategy", [record_name, topic_record_name])
def test_a_schema_without_a_name_has_no_such_subject(strategy: object) -> None:
    assert callable(strategy)
    with pytest.raises(ValueError, match="the schema has no name"):
        strategy("orders", "value", "")
