"""Elements of SVG and HTML as text that cannot be broken by what it shows.

Pure.  Everything that is not `Markup` is escaped when it enters an element, so what a client, a
server or a fault said can never become markup; characters that XML forbids are shown as U+FFFD.
What is written is well-formed XML in both languages.
"""

import re
from collections.abc import Iterable
from typing import TypeAlias

FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML document may hold, not even escaped: control characters, lone surrogates."""

Attribute: TypeAlias = str | int | float | None


class Markup(str):
    """Text that already is markup."""

    __slots__ = ()


def escape(value: object) -> str:
    """Return text that is itself wherever it stands: in content or in a quoted attribute."""
    text = str(value)
    if text.isalnum() and text.isascii():
        return text
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return FORBIDDEN.sub("\ufffd", text.replace('"', "&quot;"))


def number(value: float) -> str:
    """Return a coordinate with at most one digit behind the point."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def element(name: str, /, *children: object, **attributes: Attribute) -> Markup:
    """Return an element; attributes that are None are left out.

    `class_` is class, and other underscores are hyphens (`text_anchor`, `aria_label`).
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not children:
        return Markup(f"<{name}{told}/>" if name in VOID else f"<{name}{told}></{name}>")
    return Markup(f"<{name}{told}>{joined(children)}</{name}>")


VOID = frozenset(
    {
        "circle",
        "line",
        "path",
        "rect",
        "use",
        "br",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "polyline",
    }
)
"""What has no content: written `<br/>`; in HTML anything else needs its end tag."""


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Return parts one after the other, escaped unless they are markup."""
    return Markup(
        between.join(part if isinstance(part, Markup) else escape(part) for part in parts)
    )


def _attribute(value: Attribute) -> str:
    return number(value) if isinstance(value, float) else escape(value)
