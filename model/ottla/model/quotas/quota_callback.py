"""Client quotas whose limits an operator's own Python code decides: the setting
`client.quota.callback.class=module:Class`.

The class has the methods of Kafka's ClientQuotaCallback under Python names: see `QuotaCallback`. If
the operator's code raises an exception or returns an invalid limit, the error is logged and the
client has no limit. A broker calls the code on its event loop, and a controller calls it during a
decision. The code must therefore never block.
"""

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol, TypeVar

from ottla.model.errors import ConfigError
from ottla.model.quotas.quota_limits import ClientEntity, Level, Limits, Match
from ottla.model.settings.quotas import CALLBACK_CLASS
from ottla.model.unexpected_errors import UnexpectedErrors

T = TypeVar("T")

TAGS_MAX = 8
"""Maximum number of tags whose values identify the usage of a client. Further tags are ignored."""

CUSTOM = Level(None, None)


class QuotaCallback(Protocol):
    """Interface of the class in the setting `client.quota.callback.class`.

    `quota_type` is a name of Kafka's `ClientQuotaType`: CONTROLLER_MUTATION on a controller, and on
    a broker the names of all its other client quotas.
    """

    def configure(self, configs: Mapping[str, str]) -> None:
        """Accept the node's settings. Called once, at the start. The callback may refuse the
        settings by raising an exception."""
        ...

    def quota_metric_tags(
        self, quota_type: str, principal: str, client_id: str
    ) -> Mapping[str, str] | None:
        """Return the tags that identify the quota of a client, or None if the client has no quota.
        Clients with the same tags share one limit."""
        ...

    def quota_limit(self, quota_type: str, metric_tags: Mapping[str, str]) -> float | None:
        """Return the limit of the clients with these tags, or None for no limit."""
        ...

    def update_quota(self, quota_type: str, entity: ClientEntity, value: float) -> None:
        """Handle a limit that an administrator has set for `entity` in the cluster."""
        ...

    def remove_quota(self, quota_type: str, entity: ClientEntity) -> None:
        """Handle the removal of the limit that was set for `entity` in the cluster."""
        ...

    def quota_reset_required(self, quota_type: str) -> bool:
        """Return whether limits of this quota type have changed since the last call."""
        ...


class CustomLimits(Limits):
    """Limits of one quota, as decided by the operator's callback."""

    def __init__(self, quota_type: str, callback: QuotaCallback, errors: UnexpectedErrors) -> None:
        super().__init__()
        self._type = quota_type
        self._callback = callback
        self._errors = errors
        self._reported: dict[ClientEntity, float] = {}

    def __bool__(self) -> bool:
        """Return True, because only the callback knows whether there are limits."""
        return True

    def tell(self, limits: Limits) -> None:
        """Report to the callback all limits that have been set, changed or removed in the cluster
        since the last call."""
        now = dict(limits.by_entity)
        for entity in self._reported.keys() - now.keys():
            self._guarded(None, self._callback.remove_quota, self._type, entity)
        for entity, limit in now.items():
            if self._reported.get(entity) != limit:
                self._guarded(None, self._callback.update_quota, self._type, entity, limit)
        self._reported = now

    @property
    def may_change(self) -> bool:
        """Always True, because the callback may return another limit at each call."""
        return True

    @property
    def have_changed(self) -> bool:
        """True if the callback reports that limits have changed since this property was last
        read."""
        return bool(self._guarded(False, self._callback.quota_reset_required, self._type))

    def find(self, user: str, client_id: str) -> Match | None:
        """Return the callback's limit for a client, or None if the client has no limit."""
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
    """Return a configured instance of the callback class `name`. Raises ConfigError if the class
    cannot be loaded or refuses `configs`."""
    module_name, _, class_name = name.partition(":")
    try:
        callback: QuotaCallback = getattr(import_module(module_name), class_name)()
        callback.configure(configs)
    except Exception as error:  # not our code; the sentence names it
        raise ConfigError(CALLBACK_CLASS, f"{name} cannot start: {error}") from error
    return callback
