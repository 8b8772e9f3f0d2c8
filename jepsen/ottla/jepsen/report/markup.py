"""Elements of HTML as text that values of a run cannot break out of.

Pure.  Everything that is not `Markup` is escaped when it enters an element, so a value of a client,
a server or a fault cannot become markup; characters that XML forbids appear as U+FFFD.  The result
is well-formed XML too.
"""

import re
from collections.abc import Iterable
from typing import TypeAlias

FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document may hold, not even escaped: controls, lone surrogates."""
VOID = frozenset({"meta", "input", "br", "hr"})
"""Elements without content, written `<br/>`; every other element needs its end tag in HTML."""

Attribute: TypeAlias = str | int | None


class Markup(str):
    """Text that already is markup."""

    __slots__ = ()


def escape(value: object) -> str:
    """Return text that stands for itself in content and in a quoted attribute."""
    text = str(value)
    if text.isalnum() and text.isascii():
        return text
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return FORBIDDEN.sub("\ufffd", text.replace('"', "&quot;"))


def element(name: str, /, *children: object, **attributes: Attribute) -> Markup:
    """Return an element without the attributes that are None.

    `class_` is class, and other underscores are hyphens (`aria_label`).
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
    """Return parts in their order, escaped unless they are markup."""
    return Markup(
        between.join(part if isinstance(part, Markup) else escape(part) for part in parts)
    )
