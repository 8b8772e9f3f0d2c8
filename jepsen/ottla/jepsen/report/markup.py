"""Builds HTML elements as text, with all values of a run escaped.

The module is pure. Everything that is not `Markup` is escaped when it is put into an element. So a
value from a client, a server or a fault cannot become markup. Characters that XML forbids are
replaced by U+FFFD. The result is also well-formed XML.
"""

import re
from collections.abc import Iterable
from typing import TypeAlias

FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that an XML document cannot contain even when escaped: controls and lone
surrogates."""
VOID = frozenset({"meta", "input", "br", "hr"})
"""Names of HTML elements without content, written `<br/>`; every other element needs its end tag in
HTML."""

Attribute: TypeAlias = str | int | None


class Markup(str):
    """Text that is already HTML markup, so that it is not escaped."""

    __slots__ = ()


def escape(value: object) -> str:
    """Return a text escaped for use as HTML content and in a quoted attribute."""
    text = str(value)
    if text.isalnum() and text.isascii():
        return text
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return FORBIDDEN.sub("\ufffd", text.replace('"', "&quot;"))


def element(name: str, /, *children: object, **attributes: Attribute) -> Markup:
    """Return an HTML element as markup. Attributes that are None are left out.

    `class_` is written as class. Underscores in other names are written as hyphens (`aria_label`).
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Join the parts of an HTML text in order. Parts that are not markup are escaped."""
    return Markup(
        between.join(part if isinstance(part, Markup) else escape(part) for part in parts)
    )
