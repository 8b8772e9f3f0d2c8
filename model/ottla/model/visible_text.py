"""Texts of strangers made safe to look at: what steers a terminal is shown as an escape.

Pure.  Names of groups, members, clients and hosts may hold any character.  A control character
moves the cursor or sets the terminal's title, a bidirectional override shows a name as another
one, and what is invisible hides that two names differ.
"""

import json
import re
from typing import Any

INVISIBLE = (
    "\x00-\x1f\x7f-\x9f"  # controls: C0, DEL, C1
    "\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # formats, bidi
    "\ud800-\udfff"  # lone surrogates, which no terminal can be sent
    "\U000e0000-\U000e007f"  # tags
)
UNSAFE = re.compile(f"[{INVISIBLE}]")
UNSAFE_BUT_LAYOUT = re.compile(f"(?![\n\t])[{INVISIBLE}]")


def visible(text: str, *, keeps_layout: bool = False) -> str:
    r"""Return a text with what cannot be seen as escapes: `\x1b`, `\u202e`, `\U000e0041`.

    With `keeps_layout` line ends and tabs stay: the text is several lines of our own.
    """
    pattern = UNSAFE_BUT_LAYOUT if keeps_layout else UNSAFE
    return pattern.sub(_escape, text)


def visible_json(
    value: Any, *, indent: int | None = None, separators: tuple[str, str] | None = None
) -> str:
    """Return a value as JSON that is readable, and as safe to look at as `visible`."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, separators=separators)
    # JSON escapes C0 alone. Outside of its strings there is nothing to escape but line ends.
    return UNSAFE_BUT_LAYOUT.sub(lambda found: json.dumps(found.group())[1:-1], text)


def _escape(found: re.Match[str]) -> str:
    number = ord(found.group())
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
