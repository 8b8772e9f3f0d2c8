"""Parser of `.properties` files in Java's format.

Pure.  If a key occurs more than once, the last line takes effect, as in Java.
"""

from ottla.model.errors import ConfigError

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
CODE_POINT_DIGITS = 4


def parse_properties(text: str) -> dict[str, str]:
    """Return the settings in a `.properties` file.  Raises ConfigError, which names the line, if a
    line is malformed."""
    values: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        if not key:
            raise ConfigError(f"line {number}", f"{line!r} has no key")
        values[_unescape(key, number)] = _unescape(value, number).rstrip()
    return values


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return the logical lines of a `.properties` text, each with its line number. A line that ends
    in an odd number of backslashes is joined with the next one. Comments are dropped."""
    lines: list[tuple[int, str]] = []
    held, held_from = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        part = raw.lstrip()
        if not held and (not part or part[0] in "#!"):
            continue
        backslash_count = len(part) - len(part.rstrip("\\"))
        held_from = held_from or number
        if backslash_count % 2:
            held += part[:-1]
            continue
        lines.append((held_from, held + part))
        held, held_from = "", 0
    if held:
        lines.append((held_from, held))
    return lines


def _split(line: str) -> tuple[str, str]:
    """Split a line of a `.properties` file at the first `=`, `:` or blank that no backslash
    escapes. Returns the key and the value."""
    at = 0
    while at < len(line) and line[at] not in "=: \t":
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip()
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip()
    return key, rest


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\" or at + 1 == len(text):
            parts.append(text[at])
            at += 1
        elif text[at + 1] == "u":
            digits = text[at + 2 : at + 2 + CODE_POINT_DIGITS]
            try:
                parts.append(chr(int(digits, 16)))
            except ValueError:
                raise ConfigError(f"line {number}", f"\\u{digits} is no character") from None
            at += 2 + CODE_POINT_DIGITS
        else:
            parts.append(ESCAPES.get(text[at + 1], text[at + 1]))
            at += 2
    return "".join(parts)
