"""A schema registry whose schemas are files in a directory, for tests and offline programs."""

from pathlib import Path

from ottla.client.registry.rest_store import RestStore
from ottla.client.registry.schema_registry import RegistryCall, RegistryReply, SchemaRegistry


class _StoreTransport:
    """Transport of registry calls to a store in this process. Its coroutines never suspend."""

    def __init__(self, store: RestStore) -> None:
        self._store = store

    async def exchange(self, call: RegistryCall) -> RegistryReply:
        """Return the response of the store in this process."""
        return self._store.answer(call)


def file_registry(directory: str | Path) -> SchemaRegistry:
    """Open the schema registry in a directory, which is created if it does not exist.

    The registry has the same methods as a registry from `open_registry`, but needs no server. The
    methods work in trio, in asyncio and with `run_blocking`. `RestStore` describes the files.
    """
    return SchemaRegistry(_StoreTransport(RestStore(directory)))
