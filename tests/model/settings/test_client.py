"""Settings of the clients."""

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.client import ProducerConfig


def test_the_acknowledgements_of_a_producer_may_be_a_number() -> None:
    assert ProducerConfig(acks=-1) == ProducerConfig(acks="-1")
    for number in (0, 1):
        config = ProducerConfig(acks=number, enable_idempotence=False)
        assert config.acks == str(number)
    with pytest.raises(ConfigError, match=r"acks: is 1; .* needs all, or set it to false"):
        ProducerConfig(acks=1)
    for wrong in (2, True, 1.0, None):
        with pytest.raises(ConfigError, match=r"acks: is .*; it must be one of all, -1"):
            ProducerConfig(acks=wrong)  # type: ignore[arg-type]  # what an application may pass
