"""The audit log: what principals were refused, and at DEBUG what they were allowed.

Logger `ottla.authorizer`, in place of Kafka's `kafka.authorizer.logger`.  A client chooses the
names in these lines and how often it is refused, so the names are made visible and cut, and lines
are bounded: those above the bound are counted in the next one.
"""

import logging
from collections.abc import Callable

from ottla.model.acls import AclEntry, AclOperation, PatternType, ResourceType
from ottla.model.log_events import event
from ottla.model.log_limiter import LogLimiter
from ottla.model.visible_text import visible

LOGGER = logging.getLogger("ottla.authorizer")

DENIALS_PER_WINDOW_MAX = 100
"""Refusals that are logged in a window of the limiter, 10 s: at 300 bytes each some 250 MB in a
day of nothing else.  Fewer hide what happens beside a client that tries again and again."""

NAME_CHARS_MAX = 256
"""Length to which a name is cut in a line."""


class AuditLog:
    """The audit log of one node."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """Bound what is logged by a monotonic clock."""
        self._now_ms = now_ms
        self._limiter = LogLimiter(DENIALS_PER_WINDOW_MAX)

    @property
    def has_allowed(self) -> bool:
        """Whether what is allowed is logged too."""
        return LOGGER.isEnabledFor(logging.DEBUG)

    def denied(
        self,
        question: tuple[str, str, AclOperation, ResourceType, str],
        reason: str,
        entry: AclEntry | None,
    ) -> None:
        """Log that a client was refused something that it asked for by name."""
        if not LOGGER.isEnabledFor(logging.INFO):
            return
        kept_back = self._limiter.admit(self._now_ms())
        if kept_back is None:
            return
        more = f" ({kept_back} more were denied since the last line)" if kept_back else ""
        _log(logging.INFO, "Denied", question, f"{_rule(reason, entry)}{more}")

    def allowed(
        self,
        question: tuple[str, str, AclOperation, ResourceType, str],
        reason: str,
        entry: AclEntry | None,
    ) -> None:
        """Log that a client was allowed something."""
        _log(logging.DEBUG, "Allowed", question, _rule(reason, entry))


def _log(
    level: int,
    verdict: str,
    question: tuple[str, str, AclOperation, ResourceType, str],
    rule: str,
) -> None:
    principal, host, operation, resource_type, name = question
    safe_name, safe_principal = _safe(name), _safe(principal)
    LOGGER.log(
        level,
        "Principal = %s is %s operation = %s from host = %s on resource = %s:%s:%s "
        "based on rule %s",
        safe_principal,
        verdict,
        operation.name,
        host,
        resource_type.name,
        PatternType.LITERAL.name,
        safe_name,
        rule,
        extra=event(
            "authorizer.decision",
            principal=safe_principal,
            verdict=verdict.lower(),
            operation=operation.name,
            host=host,
            resource=f"{resource_type.name}:{safe_name}",
        ),
    )


def _rule(reason: str, entry: AclEntry | None) -> str:
    if entry is None:
        return reason
    return (
        f"{reason}({entry.permission.name} {_safe(entry.principal)} {entry.operation.name} on "
        f"{entry.resource_type.name}:{entry.pattern_type.name}:{_safe(entry.resource_name)} "
        f"from {_safe(entry.host)})"
    )


def _safe(text: str) -> str:
    return visible(text[:NAME_CHARS_MAX]) + ("…" if len(text) > NAME_CHARS_MAX else "")
