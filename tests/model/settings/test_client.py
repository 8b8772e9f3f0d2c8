"""Settings of the clients."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.client import AdminConfig, ConsumerConfig, ProducerConfig


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


@pytest.mark.parametrize(
    ("config", "unknown", "cure"),
    [
        (ProducerConfig, "batch_size", "; is batch_bytes meant, Kafka's batch.size?"),
        (ConsumerConfig, "max_poll_records", "; is poll_records_max meant, Kafka's max.poll.rec"),
        (ProducerConfig, "lingerms", "; is linger_ms meant, Kafka's linger.ms?"),
        (ConsumerConfig, "bootstrap_servers", "; addresses are the first argument of open_produ"),
        (AdminConfig, "zzz", ""),
    ],
)
def test_an_unknown_argument_names_the_field_that_was_meant(
    config: Any, unknown: str, cure: str
) -> None:
    with pytest.raises(TypeError) as caught:
        config(**{unknown: 1})
    said = str(caught.value)
    assert said.startswith(f"{config.__name__} has no setting {unknown!r}{cure}")
    assert bool(cure) or said.endswith("'zzz'")


def test_other_errors_of_a_constructor_stay() -> None:
    with pytest.raises(TypeError, match="positional"):
        ProducerConfig("localhost")  # type: ignore[call-arg]  # what an application may pass
    assert replace(ProducerConfig(), linger_ms=7).linger_ms == 7
