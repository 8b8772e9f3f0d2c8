"""Audit log: lines about denied operations of principals, and at level DEBUG also about allowed
operations.

The logger is named `ottla.authorizer`; Kafka's is `kafka.authorizer.logger`. A client chooses the
names that appear in these lines, and can cause any number of denials. Names are therefore escaped
and shortened, and the number of lines per time is limited. The next line reports the number of
denials that were not logged.
"""

import logging
from collections.abc import Callable

from ottla.model.log_events import event
from ottla.model.log_limiter import LogLimiter
from ottla.model.security.acls import AclEntry, AclOperation, PatternType, ResourceType
from ottla.model.visible_text import visible

LOGGER = logging.getLogger("ottla.authorizer")

DENIALS_PER_WINDOW_MAX = 100
"""Maximum number of denials logged per window of the limiter (10 s). At 300 bytes each, this is at
most 250 MB a day. With a smaller value, denials of other clients would not be logged while one
client retries continuously."""

NAME_CHARS_MAX = 256
"""Maximum length of a name in an audit log line, in characters. Longer names are cut off."""


class AuditLog:
    """The audit log (denied and allowed operations of principals) of one node."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """Create an audit log whose number of lines per time is limited. `now_ms` returns the time
        of a monotonic clock in ms."""
        self._now_ms = now_ms
        self._limiter = LogLimiter(DENIALS_PER_WINDOW_MAX)

    @property
    def has_allowed(self) -> bool:
        """True if the audit log also contains allowed operations, which it does at level DEBUG."""
        return LOGGER.isEnabledFor(logging.DEBUG)

    def denied(
        self,
        question: tuple[str, str, AclOperation, ResourceType, str],
        reason: str,
        entry: AclEntry | None,
    ) -> None:
        """Log that a principal's operation on a named resource was denied, unless too many denials
        were logged recently."""
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
        """Log that a principal's operation was allowed."""
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
