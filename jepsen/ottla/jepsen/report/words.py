"""Numbers, durations and operations as a person says them.

Pure.  An operation's words are short enough for a tooltip: long lists are cut, and say so.
"""

from collections.abc import Mapping, Sequence

from ottla.jepsen.history import Event, Json, Kind, Operation

WORDS_MAX = 160
"""Characters of an operation's words; more would hide the picture below the tooltip."""

RUN_SHOWN_MAX = 3
"""Records of one poll that are written out; of a longer run the first and the last one."""


def duration_words(ns: float) -> str:
    """Return a duration with three digits and its unit: "4.25 ms"."""
    if ns == 0:
        return "0 s"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size * 0.9995:
            return f"{_three(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def seconds_words(seconds: float) -> str:
    """Return how long something took: "45 s", "3 min", "2 min 5 s", "1 h 20 min"."""
    if seconds < 60:
        return f"{_three(seconds)} s"
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    parts = [f"{hours} h" if hours else "", f"{minutes} min" if minutes else ""]
    parts.append(f"{rest} s" if rest and not hours else "")
    return " ".join(part for part in parts if part)


def count_words(value: float) -> str:
    """Return a count with its thousands apart; large ones as 1.2 M."""
    if abs(value) >= 10_000_000:
        return f"{_three(value / 1e6)} M"
    if value == int(value):
        return f"{int(value):,}"
    # A share of 0.99995 is not 1.
    return f"{value:.5g}" if abs(value) < 1 else _three(value)


def many(count: float, what: str) -> str:
    """Return a count of things: "1 fault", "3 faults"."""
    return f"{count_words(count)} {what if count == 1 else _plural(what)}"


def operation_words(operation: Operation, key: str | None = None) -> str:
    """Return what was asked and what came of it: "send q0-1 17 → 334".

    With `key`, what a log's operation did to other keys is only counted.
    """
    invoke, completion = operation.invoke, operation.completion
    came = completion.value if completion is not None else None
    did = value_words(_about(key, came if came is not None else invoke.value))
    words = f"{invoke.f} {did}" if not did.startswith(invoke.f) else did
    return words if len(words) <= WORDS_MAX else words[: WORDS_MAX - 1] + "…"


def outcome_words(operation: Operation) -> str:
    """Return when and how an operation ended: "ok after 4.25 ms"; errors are quoted."""
    completion = operation.completion
    if completion is None:
        return "never answered"
    took = duration_words(completion.time_ns - operation.invoke.time_ns)
    error = f": {shortened(completion.error, WORDS_MAX)}" if completion.error else ""
    return f"{KIND_WORDS[completion.kind]} after {took}{error}"


KIND_WORDS = {
    Kind.INVOKE: "begun",
    Kind.OK: "ok",
    Kind.FAIL: "failed",
    Kind.INFO: "unknown",
}


def where_words(extra: Mapping[str, Json]) -> str:
    """Return which client and node an operation used, as far as it was noted."""
    return ", ".join(str(extra[name]) for name in ("client", "node") if extra.get(name))


def event_words(event: Event) -> str:
    """Return a fault's event in words: "kill start b1, b2"."""
    value = event.value if isinstance(event.value, dict) else {}
    nodes = value.get("nodes")
    parts = [event.f, value.get("phase"), ", ".join(map(str, nodes)) if nodes else None]
    return " ".join(str(part) for part in parts if part)


def value_words(value: Json) -> str:
    """Return a value of any workload; micro-operations of logs in their own short form."""
    if isinstance(value, list) and value and all(_is_micro(part) for part in value):
        return "; ".join(_micro_words(part) for part in value)
    if isinstance(value, list):
        return ", ".join(value_words(part) for part in value)
    if isinstance(value, dict):
        return " ".join(f"{name}={value_words(part)}" for name, part in value.items())
    if value is None:
        return "–"
    return str(value)


def shortened(text: str, characters_max: int) -> str:
    """Return text cut to a number of characters, an ellipsis at the cut."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def _about(key: str | None, value: Json) -> Json:
    if key is None or not isinstance(value, list) or not all(_is_micro(part) for part in value):
        return value
    kept: list[Json] = []
    for part in value:
        if part[0] == "poll" and len(part) == 2 and isinstance(part[1], dict):
            others = len(part[1].keys() - {key})
            records = part[1].get(key, [])
            told = {key: records} if records else {}
            kept.append(["poll", told, others] if others else ["poll", told])
        elif part[0] == "poll" or part[1] == key:
            kept.append(part)
    return kept or value


def _is_micro(part: Json) -> bool:
    return isinstance(part, list) and bool(part) and part[0] in ("send", "poll")


def _micro_words(part: Sequence[Json]) -> str:
    if part[0] == "send" and len(part) == 3:
        _, key, what = part
        if isinstance(what, list) and len(what) == 2:
            offset, value = what
            return f"send {key} {value} → {'?' if offset is None else offset}"
        return f"send {key} {what}"
    if len(part) > 1 and isinstance(part[1], dict):
        told = [f"{key} {run_words(records)}" for key, records in part[1].items()]
        told += [many(part[2], "other key")] if len(part) > 2 else []
        return f"poll {', '.join(told) or 'nothing'}"
    return "poll"


def run_words(records: Sequence[Json]) -> str:
    """Return records of one key as offset:value; of a long run its ends and its length."""
    shown = [f"{record[0]}:{record[1]}" for record in records[:RUN_SHOWN_MAX]]
    if len(records) > RUN_SHOWN_MAX:
        first, last = records[0], records[-1]
        return f"{first[0]}:{first[1]} … {last[0]}:{last[1]} ({len(records)})"
    return " ".join(shown) or "nothing"


def _three(value: float) -> str:
    if abs(value) < 0.9995:
        return f"{value:.3g}"
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _plural(what: str) -> str:
    if what.endswith("y") and what[-2:-1] not in "aeou":
        return f"{what[:-1]}ies"
    return f"{what}es" if what.endswith(("s", "sh", "ch")) else f"{what}s"
