"""Table of the assignors of consumer groups by name. Pure."""

from collections.abc import Mapping
from types import MappingProxyType

from ottla.broker.groups.consumer.assignors import range as range_assignor
from ottla.broker.groups.consumer.assignors import uniform
from ottla.broker.groups.consumer.assignors.subscription import Assignor

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {"uniform": uniform.assign_in_steps, "range": range_assignor.assign_in_steps}
)
"""Assignors of consumer groups by name. The first entry is Kafka's default."""
