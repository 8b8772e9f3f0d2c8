"""Parts that the pages of a group share: addresses, states, links. Pure."""

from ottla.console.links import address
from ottla.console.sheets import Cell, LinksPart, badge
from ottla.insight.facts.group_kinds import GroupKindName
from ottla.model.ids import TopicPartition

TONES = {
    "Stable": "good",
    "Dead": "bad",
    "PreparingRebalance": "warning",
    "CompletingRebalance": "warning",
    "Assigning": "warning",
    "Reconciling": "warning",
    "NotReady": "warning",
}
NAMES_MAX = 12
"""Maximum number of names in one table cell. The cell only counts further names."""


def group_address(group: str, kind: GroupKindName | None = None) -> str:
    """Return the address of the console page that shows a group. Share groups have their own kind
    of page."""
    page = "queues" if kind is GroupKindName.SHARE else "groups"
    return address(f"/{page}/{{group}}", {"group": group})


def topic_address(topic: str) -> str:
    """Return the address of the console page that shows a topic."""
    return address("/topics/{topic}", {"topic": topic})


def state_badge(state: str) -> Cell:
    """Return the table cell for a group's state, as its coordinator names it."""
    return badge(state or "not reported", TONES.get(state, "neutral"))


def group_links(group: str, current: str) -> LinksPart:
    """Return the links between the pages of one group of consumers. `current` is the text of the
    present page's link."""
    values = {"group": group}
    return LinksPart(
        links=(
            ("Lag", address("/groups/{group}", values)),
            ("Members", address("/groups/{group}/members", values)),
            ("Reset or delete", address("/groups/{group}/reset", values)),
            ("Why is it behind?", address("/explain/lag", {}, values)),
            ("Why does it rebalance?", address("/explain/rebalance", {}, values)),
        ),
        current=current,
    )


def partition_names(partitions: frozenset[TopicPartition]) -> str:
    """Return the names of partitions as a short text for a table cell."""
    names = [str(at) for at in sorted(partitions)[:NAMES_MAX]]
    rest = len(partitions) - len(names)
    return ", ".join(names) + (f" and {rest} others" if rest else "")
