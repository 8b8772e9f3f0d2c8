"""Users that the tests of this room know."""

from collections.abc import Mapping
from functools import partial

import pytest

from ottla.broker.authentication.mechanism import SaslMechanism
from ottla.broker.authentication.plain import PlainMechanism
from ottla.broker.authentication.sasl_session import SaslCounts, SaslRules
from ottla.broker.authentication.scram_server import ScramMechanism
from ottla.model.scram import SCRAM_BY_NAME, ScramCredential
from ottla.node.clock_driver import RealRng

SALT = b"3jkkpkavuwlq5rd8g1kvdaamxh"


@pytest.fixture(scope="session")
def mechanisms() -> Mapping[str, SaslMechanism]:
    """PLAIN and SCRAM with the user al, whose password is pw."""
    found: dict[str, SaslMechanism] = {"PLAIN": PlainMechanism({"al": "pw", "ben": "pw2"})}
    for name, hashing in SCRAM_BY_NAME.items():
        credentials = {"al": ScramCredential.of_password(hashing, "pw", SALT, 4_096)}
        found[name] = ScramMechanism(hashing, partial(dict, credentials), RealRng())
    return found


@pytest.fixture
def rules(mechanisms: Mapping[str, SaslMechanism]) -> SaslRules:
    """What the listener under test asks: sessions have no end."""
    return SaslRules(mechanisms=mechanisms, session_ms_max={}, counts=SaslCounts())
