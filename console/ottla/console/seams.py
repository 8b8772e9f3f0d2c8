"""Seams of the console: the clock, chance and the audit log, which tests replace."""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from ottla.model.values import frozen
from ottla.model.visible_text import visible_json

AUDIT = logging.getLogger("ottla.console.audit")
"""Logger of the audit lines: one JSON object for each change."""


class WriteAudit(Protocol):
    """Function that writes one audit line."""

    def __call__(
        self,
        *,
        action: str,
        user: str,
        role: str,
        host: str,
        values: Mapping[str, str],
        outcome: str,
    ) -> None:
        """Write a line about an action. `values` are the names in its path; a form's fields are
        never written, because they may be secrets or records."""
        ...


@frozen(kw_only=True)
class ConsoleSeams:
    """Clock, chance and audit log."""

    now_ms: Callable[[], int]
    """Returns the wall clock in ms since 1970."""
    random_bytes: Callable[[int], bytes]
    """Returns unpredictable bytes."""
    audit: WriteAudit


def write_audit(
    *, action: str, user: str, role: str, host: str, values: Mapping[str, str], outcome: str
) -> None:
    """Write an audit line to the log, as JSON without control characters."""
    AUDIT.info(
        "%s",
        visible_json(
            {
                "action": action,
                "user": user,
                "role": role,
                "host": host,
                "names": dict(values),
                "outcome": outcome,
            }
        ),
    )
