"""Conversion of untrusted texts for display. Invisible characters and characters that control a
terminal are shown as escapes.

Pure. Names of groups, members, clients and hosts may contain any character. A control character can
move the cursor or set the terminal's title. A bidirectional override can make a name look like
another one. Invisible characters can hide that two names differ.
"""

import json
import re
from typing import Any

INVISIBLE = (
    "\x00-\x1f\x7f-\x9f"  # controls: C0, DEL, C1
    "\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # formats, bidi
    "\ud800-\udfff"  # lone surrogates, which cannot be sent to a terminal
    "\U000e0000-\U000e007f"  # tags
)
UNSAFE = re.compile(f"[{INVISIBLE}]")
UNSAFE_BUT_LAYOUT = re.compile(f"(?![\n\t])[{INVISIBLE}]")


def visible(text: str, *, keeps_layout: bool = False) -> str:
    r"""Return a text in which invisible characters are replaced by escapes: `\x1b`, `\u202e`,
    `\U000e0041`.

    With `keeps_layout`, line ends and tabs are kept. This is for texts whose line ends were written
    by Ottla itself.
    """
    pattern = UNSAFE_BUT_LAYOUT if keeps_layout else UNSAFE
    return pattern.sub(_escape, text)


def visible_json(
    value: Any, *, indent: int | None = None, separators: tuple[str, str] | None = None
) -> str:
    """Return a value as JSON in which only the characters that `visible` would replace are escaped.
    Other characters outside ASCII are kept."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, separators=separators)
    # JSON escapes only C0. Outside of its strings only line ends would need an escape.
    return UNSAFE_BUT_LAYOUT.sub(lambda found: json.dumps(found.group())[1:-1], text)


def _escape(found: re.Match[str]) -> str:
    number = ord(found.group())
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
