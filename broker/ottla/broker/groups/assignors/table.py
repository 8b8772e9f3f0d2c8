"""The assignors by the names that members ask for.  Pure."""

from collections.abc import Mapping
from types import MappingProxyType

from ottla.broker.groups.assignors import range as range_assignor
from ottla.broker.groups.assignors import uniform
from ottla.broker.groups.assignors.subscription import Assignor

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {"uniform": uniform.assign_in_steps, "range": range_assignor.assign_in_steps}
)
"""The first is Kafka's default."""
