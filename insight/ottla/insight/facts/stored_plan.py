"""Reads the balance plan (moves of replicas) that the cluster carries out."""

from dataclasses import dataclass

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.model.balance.plan_text import StoredMove, parse_moves
from ottla.model.settings.balance import (
    BALANCE_PLAN,
    BALANCE_RATE_MAX,
    DEFAULT_RATE_MAX,
)
from ottla.model.settings.resources import ConfigKind

RATE = "follower.replication.throttled.rate"


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """Remaining moves of the balance plan in the cluster, and their present throttle in bytes per
    second."""

    moves: tuple[StoredMove, ...]
    rate: int


NO_PLAN = StoredPlan((), DEFAULT_RATE_MAX)


async def read_stored_plan(admin: Admin) -> StoredPlan:
    """Return the balance plan (moves of replicas) that the cluster carries out. The result has no
    moves if the cluster has no plan."""
    found = await admin.describe_configs(
        ConfigResource(ConfigKind.BROKER, ""), keys=(BALANCE_PLAN, BALANCE_RATE_MAX, RATE)
    )
    plan, highest, rate = (found.get(key) for key in (BALANCE_PLAN, BALANCE_RATE_MAX, RATE))
    text = "" if plan is None else plan.value or ""
    present = rate or highest
    bytes_per_s = DEFAULT_RATE_MAX if present is None else int(present.value or DEFAULT_RATE_MAX)
    return StoredPlan(parse_moves(text), bytes_per_s)
