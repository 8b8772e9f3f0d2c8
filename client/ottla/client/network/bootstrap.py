"""Where a client asks first."""

from collections.abc import Iterable

from ottla.model.settings.endpoints import parse_bootstrap


def addresses_of(bootstrap: str | Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the addresses that `host:port,…` names, or those given as they are."""
    if isinstance(bootstrap, str):
        return list(parse_bootstrap(bootstrap))
    return list(bootstrap)
