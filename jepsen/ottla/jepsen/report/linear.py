"""Table of the longest valid order that a checker found for the calls of one register, followed by
the calls that do not fit after this order.

The module is pure. At the end of the order, one of several calls had to be next, but none of them
fits. Calls that overlap with these are listed too. At least one of the listed calls is wrong.
"""

from collections.abc import Mapping, Sequence

from ottla.jepsen.history import Json
from ottla.jepsen.report.markup import Markup, element
from ottla.jepsen.report.page import table, tag
from ottla.jepsen.report.words import count_words, many, shortened, value_words

STEPS_MAX = 15
"""Maximum number of calls in the report about a register that is not linearizable: the last calls
of the longest linearizable order that was found."""
OVERLAPS_MAX = 15


def order_table(name: str, search: Mapping[str, Json]) -> Markup:
    """Return the table of the calls of one register (such as a committed offset), with a title.
    `search` is the entry of a verdict that the checker stored for this register."""
    calls, order, states = search["operations"], search["order"], search["states"]
    stuck = [calls[place] for place in search["stuck"]]
    words = ", ".join(f"{_call(one)} by {one['process']}" for one in stuck)
    last = _state(states[-1]) if states else "its first state"
    sentence = (
        f"{count_words(len(order))} of {many(len(calls), 'call')} fit into an order; it ends in "
        f"{shortened(last, 80)}, where {shortened(words, 300) or 'the next call'} cannot follow."
    )
    rows = [
        _row(str(number + 1), calls[order[number]], shortened(_state(states[number]), 120))
        for number in range(max(0, len(order) - STEPS_MAX), len(order))
    ]
    rows += [_row("✗", one, tag("✗ impossible here", False)) for one in stuck]
    rest = [one for place, one in enumerate(calls) if place not in {*order, *search["stuck"]}]
    overlaps = [one for one in rest if any(_overlap(one, other) for other in stuck)]
    rows += [_row("–", one, "overlaps, not in the order") for one in overlaps[:OVERLAPS_MAX]]
    return element(
        "details",
        element("summary", f"No order fits {name}"),
        element("p", sentence),
        table(("no.", "process", "events", "call", "state after it"), rows),
    )


def _row(number: str, call: Mapping[str, Json], state: object) -> Sequence[object]:
    events = f"{call['begin']} to {call['end'] if call['end'] is not None else 'never'}"
    return number, str(call["process"]), events, shortened(_call(call), 160), state


def _overlap(one: Mapping[str, Json], other: Mapping[str, Json]) -> bool:
    first, second = sorted((one, other), key=lambda call: int(call["begin"]))
    return first["end"] is None or bool(first["end"] > second["begin"])


def _call(call: Mapping[str, Json]) -> str:
    return f"{call['f']} {_state(call['value'])}"


def _state(state: Json) -> str:
    """Return the value of a register (such as a committed offset) as text. Checkers write -1 for an
    empty register."""
    return "nothing" if state is None or state == -1 else value_words(state)
