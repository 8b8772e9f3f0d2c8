"""Explanation of a part of the cluster's state: a verdict, the causes in order, their evidence and
the commands that help. Pure values."""

import shlex
from enum import Enum
from typing import Any

from ottla.model.values import frozen

FactValue = str | int | float | bool | None


class Conclusion(Enum):
    """Verdict of an explanation about the cluster's state."""

    CAUSED = "caused"
    """Verdict that at least one cause was found."""
    CLEAR = "clear"
    """Verdict that no possible cause applies. All necessary data could be read."""
    UNKNOWN = "unknown"
    """Verdict that no cause was found, but some of the necessary data could not be read."""


@frozen
class Evidence:
    """One fact that supports a cause, such as the committed offset of a group."""

    label: str
    """Noun phrase that names the supporting value and its unit, such as "lag in records"."""
    value: FactValue
    """Value of the fact that supports the cause. None if it is unknown."""


@frozen(kw_only=True)
class Cause:
    """One reason for the state of the cluster that an explanation is about."""

    kind: str
    """Stable identifier of the cause, such as "denied-by-entry". Scripts may depend on it."""
    summary: str
    """Sentence that states the cause, without a full stop."""
    evidence: tuple[Evidence, ...] = ()
    remedy: str = ""
    """Sentence that describes the change that removes the cause. Empty if `fix` is enough."""
    fix: str = ""
    """Command that removes the cause. Empty if no command can remove it, for example if a machine
    has stopped."""
    more: str = ""
    """Command that shows more about the cause. Empty if there is no such command."""


@frozen
class FactTable:
    """Table of values of the same kind, such as the topics with the most traffic."""

    name: str
    """Noun that names the rows of the table, such as "topics"."""
    columns: tuple[str, ...]
    """Noun phrases for the columns of the table, with their units."""
    rows: tuple[tuple[FactValue, ...], ...]
    """Values of each row of the table, in the order of the columns."""


@frozen(kw_only=True)
class Explanation:
    """Explanation of a part of the cluster's state: causes with their evidence, tables, notes, and
    names of data that could not be read."""

    answer: str
    """Name of the question in the table of answers, such as "lag"."""
    subject: str
    """Noun phrase that names the examined object, such as "group billing"."""
    verdict: Conclusion
    causes: tuple[Cause, ...] = ()
    """Causes of the examined state, in the order in which an operator should remove them."""
    tables: tuple[FactTable, ...] = ()
    """Tables that the explanation shows in addition to the causes, such as the busiest topics."""
    notes: tuple[str, ...] = ()
    """Sentences about the examined object that are not causes, such as an ACL that allows the
    operation."""
    unknown: tuple[str, ...] = ()
    """Facts for the explanation that could not be read, each with the reason, as text."""

    @property
    def as_json(self) -> dict[str, Any]:
        """The explanation as a JSON object, in the form that the command line, web pages and agents
        share."""
        return {
            "answer": self.answer,
            "subject": self.subject,
            "verdict": self.verdict.value,
            "causes": [
                {
                    "kind": cause.kind,
                    "summary": cause.summary,
                    "evidence": {one.label: one.value for one in cause.evidence},
                    "remedy": cause.remedy or None,
                    "fix": cause.fix or None,
                    "more": cause.more or None,
                }
                for cause in self.causes
            ],
            "tables": {
                one.name: [dict(zip(one.columns, row, strict=True)) for row in one.rows]
                for one in self.tables
            },
            "notes": list(self.notes),
            "unknown": list(self.unknown),
        }


def concluded(
    answer: str,
    subject: str,
    causes: tuple[Cause, ...] | list[Cause],
    *,
    tables: tuple[FactTable, ...] | list[FactTable] = (),
    notes: tuple[str, ...] | list[str] = (),
    unknown: tuple[str, ...] | list[str] = (),
) -> Explanation:
    """Return an explanation with the given parts. The causes and the missing data determine its
    verdict."""
    verdict = Conclusion.CLEAR
    if causes:
        verdict = Conclusion.CAUSED
    elif unknown:
        verdict = Conclusion.UNKNOWN
    return Explanation(
        answer=answer,
        subject=subject,
        verdict=verdict,
        causes=tuple(causes),
        tables=tuple(tables),
        notes=tuple(notes),
        unknown=tuple(unknown),
    )


class NameArgument(str):
    """Argument of a command that is a name chosen by users, such as a topic name."""

    __slots__ = ()


def command(*words: object) -> str:
    """Return a command of `ottla` with its arguments quoted for a shell.

    A `NameArgument` that begins with a dash would be read as an option. It is joined to the option
    before it, as in `--group=-g`. Names that are not the value of an option follow at the end,
    after `--`.
    """
    shown, positional = ["ottla"], list[str]()
    has_dash = any(isinstance(word, NameArgument) and str(word).startswith("-") for word in words)
    is_option_last = False
    for word in words:
        text = str(word)
        if isinstance(word, NameArgument) and is_option_last and text.startswith("-"):
            shown[-1] += f"={text}"
        elif isinstance(word, NameArgument) and has_dash and not is_option_last:
            positional.append(text)
        else:
            shown.append(text)
        is_option_last = not isinstance(word, NameArgument) and text.startswith("-")
    return " ".join(map(_quoted, [*shown, *(["--", *positional] if positional else ())]))


def _quoted(word: str) -> str:
    """Return a word quoted for a shell. Unprintable characters, which could control a terminal, are
    written as escape sequences in `$'…'`, which bash, zsh and POSIX 2024 support."""
    if word.isprintable():
        return shlex.quote(word)
    shown = (
        f"\\{char}"
        if char in "\\'"
        else char
        if char.isprintable()
        else "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in word
    )
    return f"$'{''.join(shown)}'"
