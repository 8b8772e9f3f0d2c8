"""Effects of the console that tests replace: the clock, random bytes and the audit log."""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from ottla.model.values import frozen
from ottla.model.visible_text import visible_json

AUDIT = logging.getLogger("ottla.console.audit")
"""Logger of the console's audit log: one JSON object for each change of the cluster."""


class WriteAudit(Protocol):
    """Function that writes one line of the audit log."""

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
        """Write a line about an action to the audit log. `values` contains the names in the
        action's path. A form's fields are never written, because they may be secrets or records."""
        ...


@frozen(kw_only=True)
class ConsoleSeams:
    """Clock, source of random bytes and audit log of the console, which tests replace."""

    now_ms: Callable[[], int]
    """Function that returns the wall clock in ms since 1970."""
    random_bytes: Callable[[int], bytes]
    """Function that returns a number of unpredictable bytes."""
    audit: WriteAudit


def write_audit(
    *, action: str, user: str, role: str, host: str, values: Mapping[str, str], outcome: str
) -> None:
    """Write a line about an action to the audit log, as JSON without control characters."""
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
