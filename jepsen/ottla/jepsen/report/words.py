"""Text for numbers, durations, operations and faults in reports of runs.

The module is pure. The text of an operation fits into one line: long lists are truncated, with an
ellipsis.
"""

from collections.abc import Mapping, Sequence

from ottla.jepsen.history import Event, EventKind, Json, Operation

WORDS_MAX = 160
"""Maximum length in characters of an operation's text in a report. Longer text would break the
tables."""
RUN_RECORDS_MAX = 3
"""Maximum number of records of one poll that an operation's text lists in full. For a longer poll,
only the first and the last record are listed."""
KIND_WORDS = {EventKind.OK: "ok", EventKind.FAIL: "failed", EventKind.INFO: "unknown"}


def duration_words(ns: float) -> str:
    """Return a duration in ns as text with three digits and its unit: "4.25 ms"."""
    if ns == 0:
        return "0 s"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size * 0.9995:
            return f"{_three(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def seconds_words(seconds: float) -> str:
    """Return a duration in seconds as text: "45 s", "3 min", "2 min 5 s", "1 h 20 min"."""
    if seconds < 60:
        return f"{_three(seconds)} s"
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    parts = [f"{hours} h" if hours else "", f"{minutes} min" if minutes else ""]
    parts.append(f"{rest} s" if rest and not hours else "")
    return " ".join(part for part in parts if part)


def clock_words(seconds: float) -> str:
    """Return a time in seconds since the start of a run as m:ss or h:mm:ss."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return (f"{hours}:{minutes:02}" if hours else f"{minutes}") + f":{whole % 60:02}"


def count_words(value: float) -> str:
    """Return a count as text with thousands separators, or abbreviated as 1.2 M if large."""
    if abs(value) >= 10_000_000:
        return f"{_three(value / 1e6)} M"
    if value == int(value):
        return f"{int(value):,}"
    # A share of 0.99995 is not 1.
    return f"{value:.5g}" if abs(value) < 1 else _three(value)


def share_words(part: int, whole: int) -> str:
    """Return the fraction `part` / `whole` as text in percent. The result is 100 % only if `part`
    equals `whole`."""
    if not whole:
        return "–"
    share = 100 * part / whole
    return f"{share:.0f} %" if part == whole else f"{min(share, 99.99):.2f} %"


def many(count: float, noun: str) -> str:
    """Return a count as text with its noun in the singular or plural: "1 fault", "3 faults"."""
    return f"{count_words(count)} {noun if count == 1 else _plural(noun)}"


def shortened(text: str, characters_max: int) -> str:
    """Return text truncated to at most `characters_max` characters, with an ellipsis."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def operation_words(operation: Operation, key: str | None = None) -> str:
    """Return an operation with its result as text, such as "send q0-1 17 → 334".

    With `key`, only the records of this key (partition) are shown. Records of other keys are
    counted.
    """
    words = value_words(_about(key, operation.value))
    f = operation.invoke.f
    return shortened(words if words.startswith(f) else f"{f} {words}", WORDS_MAX)


def outcome_words(operation: Operation) -> str:
    """Return the outcome and the duration of an operation as text: "ok after 4.25 ms"."""
    completion = operation.completion
    if completion is None:
        return "unknown, never answered"
    took = duration_words(completion.time_ns - operation.invoke.time_ns)
    return f"{KIND_WORDS[completion.kind]} after {took}"


def where_words(extra: Mapping[str, Json]) -> str:
    """Return the client and node of an operation as text, or "" if its events do not contain
    them."""
    return ", ".join(str(extra[name]) for name in ("client", "node") if extra.get(name))


def event_words(event: Event) -> str:
    """Return a fault's event as text, such as "kill start b1, b2"."""
    value = event.value if isinstance(event.value, dict) else {}
    nodes = value.get("nodes")
    parts = [event.f, value.get("phase"), value_words(nodes) if nodes else None]
    return " ".join(str(part) for part in parts if part)


def value_words(value: Json) -> str:
    """Return a value of any workload as text. Micro-operations on logs have a short form."""
    if isinstance(value, list):
        is_micro = bool(value) and all(map(_is_micro, value))
        return (
            "; ".join(map(_micro_words, value)) if is_micro else ", ".join(map(value_words, value))
        )
    if isinstance(value, dict):
        return " ".join(f"{name}={value_words(part)}" for name, part in value.items())
    return "–" if value is None else str(value)


def _about(key: str | None, value: Json) -> Json:
    if key is None or not isinstance(value, list) or not all(map(_is_micro, value)):
        return value
    kept: list[Json] = []
    for part in value:
        if part[0] == "poll" and len(part) == 2 and isinstance(part[1], dict):
            others = len(part[1].keys() - {key})
            mine = {key: part[1][key]} if part[1].get(key) else {}
            kept.append(["poll", mine, others] if others else ["poll", mine])
        elif part[0] == "poll" or part[1] == key:
            kept.append(part)
    return kept or value


def _is_micro(part: Json) -> bool:
    return isinstance(part, list) and bool(part) and part[0] in ("send", "poll")


def _micro_words(part: Sequence[Json]) -> str:
    if part[0] == "send" and len(part) == 3:
        _, key, sent = part
        if isinstance(sent, list) and len(sent) == 2:
            offset, value = sent
            return f"send {key} {value} → {'?' if offset is None else offset}"
        return f"send {key} {sent}"
    if len(part) > 1 and isinstance(part[1], dict):
        read = [f"{key} {_run_words(records)}" for key, records in part[1].items()]
        read += [many(part[2], "other key")] if len(part) > 2 else []
        return f"poll {', '.join(read) or 'nothing'}"
    return str(part[0])


def _run_words(records: Sequence[Json]) -> str:
    """Return the records that a poll returned for one key as text of the form offset:value. If
    there are many records, returns only the first, the last and their number."""
    if len(records) > RUN_RECORDS_MAX:
        first, last = records[0], records[-1]
        return f"{first[0]}:{first[1]} … {last[0]}:{last[1]} ({len(records)})"
    return " ".join(f"{record[0]}:{record[1]}" for record in records) or "nothing"


def _three(value: float) -> str:
    if abs(value) < 0.9995:
        return f"{value:.3g}"
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in "aeou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "sh", "ch")) else f"{noun}s"
