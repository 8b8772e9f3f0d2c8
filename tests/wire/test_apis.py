"""The table of APIs agrees with the schemas, and announces Kafka's versions to clients."""

import re
from pathlib import Path

import pytest

from ottla.wire.api import OWN_KEYS_FROM, ListenerKind
from ottla.wire.apis import (
    API,
    API_VERSIONS,
    request_class,
    response_class,
)
from ottla.wire.codec_examples import all_messages

CONTROLLER_ONLY = {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}


@pytest.mark.parametrize("key", sorted(API))
def test_a_row_says_what_both_schemas_say(key: int) -> None:
    api = API[key]
    for kind in (request_class(key), response_class(key)):
        assert key == api.key == kind.API_KEY
        assert range(api.lowest, api.highest + 1) == kind.VERSIONS
        assert api.flexible_from == kind.FLEXIBLE_FROM
        assert kind.__name__.startswith(api.name)


def test_every_message_of_an_api_has_a_row() -> None:
    keys = {kind.API_KEY for _, kind in all_messages()}
    assert keys - {-1} == set(API)


def test_kafka_has_removed_the_requests_of_its_zookeeper_days() -> None:
    assert not {4, 5, 6, 7} & set(API)


def test_what_only_controllers_serve_is_not_on_a_broker() -> None:
    assert {key for key, api in API.items() if not api.on_broker} == CONTROLLER_ONLY
    assert ListenerKind.CONTROLLER in API[18].listener


def test_produce_is_advertised_from_zero_and_served_from_three() -> None:
    assert API[0].advertised == range(14)
    assert not API[0].serves(2)
    assert API[0].serves(3)
    assert API[0].serves(13)
    assert not API[0].serves(14)


def test_unstable_versions_are_not_advertised() -> None:
    assert API[22].advertised == range(6)
    assert API[22].highest == 6
    assert API[88].advertised == range(1)
    assert API[93].advertised == range(0)
    assert API[API_VERSIONS].advertised == range(6)


def test_every_other_minimum_is_advertised_as_it_is() -> None:
    for key, api in API.items():
        if key != 0 and len(api.advertised):
            assert api.advertised[0] == api.lowest


def test_our_own_apis_are_never_advertised() -> None:
    own = sorted(key for key in API if key >= OWN_KEYS_FROM)
    assert own == list(range(OWN_KEYS_FROM, OWN_KEYS_FROM + 12))
    for key in own:
        assert API[key].on_broker
        assert len(API[key].advertised) == 0
        assert API[key].serves(0)


def test_no_other_module_repeats_an_apis_number() -> None:
    """A key that a module needs is imported from the table."""
    root = Path(__file__).parents[2]
    keys = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", row.name).upper(): key for key, row in API.items()}
    assigned = re.compile(r"^([A-Z_]+) = (\d+)$", re.MULTILINE)
    folders = [one.parent for one in root.glob("*/ottla")] + [root / "tests"]
    repeated = [
        f"{path.relative_to(root)}: {name}"
        for folder in folders
        for path in folder.rglob("*.py")
        if path != root / "wire/ottla/wire/apis.py"
        for name, number in assigned.findall(path.read_text())
        if keys.get(name) == int(number)
    ]
    assert repeated == []
