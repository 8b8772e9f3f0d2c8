"""Gives one answer about a cluster: gathers its facts and applies its rule."""

from collections.abc import Mapping

from ottla.client.admin import Admin
from ottla.insight.answers import answer_of, checked
from ottla.insight.explanation import Explanation, concluded


async def answer(admin: Admin, name: str, values: Mapping[str, str | None]) -> Explanation:
    """Return the answer with this name, such as "lag", for the values of its parameters.

    Raises ConfigError if a value is missing or wrong, and KeyError for an unknown answer.
    """
    asked = answer_of(name)
    given = checked(asked, values)
    subject = " ".join(given.values()) or "the cluster"
    return concluded(name, subject, [], unknown=[f"facts for {name} are not gathered yet"])
