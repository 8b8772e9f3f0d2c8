"""Answers one question of `ottla explain` about a cluster: gathers the facts and applies the rule
that derives the causes from them."""

from collections.abc import Callable, Mapping

from ottla.client.admin import Admin
from ottla.insight.answers import answer_of, checked
from ottla.insight.explanation import Explanation
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.facts_driver import gather
from ottla.insight.rules.delivery import explain_delivery
from ottla.insight.rules.denial import explain_denial
from ottla.insight.rules.disk import explain_disk
from ottla.insight.rules.lag import explain_lag
from ottla.insight.rules.plan import explain_plan
from ottla.insight.rules.rebalance import explain_rebalance
from ottla.insight.rules.summary import explain_health, explain_slow
from ottla.insight.rules.throttle import explain_throttle
from ottla.insight.rules.top import explain_top
from ottla.insight.rules.transaction import explain_transaction
from ottla.insight.rules.unavailable import explain_unavailable

RULES: dict[str, Callable[[ClusterFacts, Mapping[str, str]], Explanation]] = {
    "health": explain_health,
    "denial": explain_denial,
    "throttle": explain_throttle,
    "lag": explain_lag,
    "unavailable": explain_unavailable,
    "rebalance": explain_rebalance,
    "slow": explain_slow,
    "disk": explain_disk,
    "transaction": explain_transaction,
    "delivery": explain_delivery,
    "top": explain_top,
    "plan": explain_plan,
}
"""Function (rule) that derives the explanation from the facts, by the name of the question in the
table of answers."""


async def answer(admin: Admin, name: str, values: Mapping[str, str | None]) -> Explanation:
    """Return the explanation of a part of the cluster's state. `name` is a question in the table of
    answers, such as "lag"; `values` are its parameters.

    Raises ConfigError if a value is missing or wrong, and KeyError for an unknown question.
    """
    given = checked(answer_of(name), values)
    return RULES[name](await gather(admin, name, given), given)
