"""Code of the operator's own that decides limits: `client.quota.callback.class=module:Class`.

It has the methods of Kafka's ClientQuotaCallback, in Python's spelling: see `QuotaCallback`.  The
code is not ours: what it raises, and limits that are none, are noted at this edge, and the client
has no limit then.  A broker calls it on its loop, a controller beside it while it decides; in
neither place may it wait for anything.  Feature QU26.
"""

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol, TypeVar

from ottla.model.errors import ConfigError
from ottla.model.quota_limits import ClientEntity, Level, Limits, Match
from ottla.model.settings.quotas import CALLBACK_CLASS
from ottla.model.unexpected_errors import UnexpectedErrors

T = TypeVar("T")

TAGS_MAX = 8
"""Tags of a client that count; its usage is kept under them."""

CUSTOM = Level(None, None)


class QuotaCallback(Protocol):
    """What the class of the setting has.

    `quota_type` is PRODUCE, FETCH or REQUEST on a broker, CONTROLLER_MUTATION on a controller.
    """

    def configure(self, configs: Mapping[str, str]) -> None:
        """Accept the node's settings, once, at the start; it may refuse them by raising."""
        ...

    def quota_metric_tags(
        self, quota_type: str, principal: str, client_id: str
    ) -> Mapping[str, str] | None:
        """Return under which tags a client's use is counted; None: it has no limit."""
        ...

    def quota_limit(self, quota_type: str, metric_tags: Mapping[str, str]) -> float | None:
        """Return the limit of these tags; None: no limit."""
        ...

    def update_quota(self, quota_type: str, entity: ClientEntity, value: float) -> None:
        """Accept a limit that was set in the cluster."""
        ...

    def remove_quota(self, quota_type: str, entity: ClientEntity) -> None:
        """Accept that a limit was removed."""
        ...

    def quota_reset_required(self, quota_type: str) -> bool:
        """Return whether limits changed since the last question."""
        ...


class CustomLimits(Limits):
    """The limits of one quota, as a callback decides them."""

    def __init__(self, quota_type: str, callback: QuotaCallback, errors: UnexpectedErrors) -> None:
        super().__init__()
        self._type = quota_type
        self._callback = callback
        self._errors = errors
        self._told: dict[ClientEntity, float] = {}

    def __bool__(self) -> bool:
        """Return True: only the callback knows whether there is any."""
        return True

    def tell(self, limits: Limits) -> None:
        """Report the limits that are set in the cluster, where they changed."""
        now = dict(limits.by_entity)
        for entity in self._told.keys() - now.keys():
            self._guarded(None, self._callback.remove_quota, self._type, entity)
        for entity, limit in now.items():
            if self._told.get(entity) != limit:
                self._guarded(None, self._callback.update_quota, self._type, entity, limit)
        self._told = now

    @property
    def may_change(self) -> bool:
        """Return True: the callback decides each time it is asked."""
        return True

    @property
    def have_changed(self) -> bool:
        """Whether limits found before may not hold now."""
        return bool(self._guarded(False, self._callback.quota_reset_required, self._type))

    def find(self, user: str, client_id: str) -> Match | None:
        """Return the limit that the callback has for a client."""
        return self._guarded(None, self._find, user, client_id)

    def _find(self, user: str, client_id: str) -> Match | None:
        tags = self._callback.quota_metric_tags(self._type, user, client_id)
        if not tags:
            return None
        limit = self._callback.quota_limit(self._type, tags)
        if limit is None:
            return None
        limit = float(limit)
        if not math.isfinite(limit) or limit <= 0:
            raise ValueError(f"{limit} is no limit for {dict(tags)}")
        others = sorted((str(key), str(value)) for key, value in tags.items() if key != "user")
        names = [value if key == "client-id" else f"{key}={value}" for key, value in others]
        return Match(CUSTOM, limit, (str(tags.get("user", "")), ",".join(names[:TAGS_MAX])))

    def _guarded(self, default: T, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return call(*arguments)
        except Exception as fault:
            self._errors.note("quota callback", self._type, fault)
            return default


def load_callback(name: str, configs: Mapping[str, str]) -> QuotaCallback:
    """Return the callback of a setting, configured.  Raises ConfigError if there is none."""
    module_name, _, class_name = name.partition(":")
    try:
        callback: QuotaCallback = getattr(import_module(module_name), class_name)()
        callback.configure(configs)
    except Exception as error:  # the code is not ours; the sentence names it
        raise ConfigError(CALLBACK_CLASS, f"{name} cannot start: {error}") from error
    return callback
