"""The checks of the contract find stores that break it."""

from collections.abc import AsyncIterable, AsyncIterator, Sequence

import pytest
from trio.testing import MockClock

from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.store_seam import ObjectEntry, ObjectNotFoundError
from tests.storage.tier.store_conformance import CHECKS, Check


class ReplacingStore(MemoryObjectStore):
    """A conditional put replaces."""

    async def put(self, key: str, content: bytes, *, only_new: bool = False) -> None:
        await super().put(key, content)


class KeepingStore(MemoryObjectStore):
    """A put keeps the rest of a longer old object."""

    async def put(self, key: str, content: bytes, *, only_new: bool = False) -> None:
        old, _ = self._objects.get(key, (b"", 0))
        await super().put(key, content + old[len(content) :], only_new=only_new)


class InclusiveStore(MemoryObjectStore):
    """A range includes its end."""

    async def get(self, key: str, start: int, end: int) -> bytes:
        return await super().get(key, start, end + 1)


class SilentStore(MemoryObjectStore):
    """A range beyond the end is empty."""

    async def get(self, key: str, start: int, end: int) -> bytes:
        content, _ = self._found(key)
        return content[start:end]


class PartialStore(MemoryObjectStore):
    """A stream is visible before its end."""

    async def put_stream(self, key: str, parts: AsyncIterable[bytes]) -> None:
        content = b""
        async for part in parts:
            content += part
            await self.put(key, content)


class FirstPartStore(MemoryObjectStore):
    """A stream of no parts stores nothing, and a failed one removes the old object."""

    async def put_stream(self, key: str, parts: AsyncIterable[bytes]) -> None:
        await self.delete([key])
        await super().put_stream(key, parts)


class LoosePrefixStore(MemoryObjectStore):
    """A prefix is a beginning of text, not a folder."""

    async def entries(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectEntry]:
        async for entry in super().entries("", after=after):
            if entry.key.startswith(prefix.removesuffix("/")):
                yield entry


class WholeListStore(MemoryObjectStore):
    """A listing ignores the key after which it should begin."""

    async def entries(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectEntry]:
        async for entry in super().entries(prefix):
            yield entry


class OnePageStore(MemoryObjectStore):
    """A listing ends after a thousand objects."""

    async def entries(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectEntry]:
        count = 0
        async for entry in super().entries(prefix, after=after):
            count += 1
            if count <= 1000:
                yield entry


class StrictDeleteStore(MemoryObjectStore):
    """A deletion stops at a missing object."""

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._found(key)
            await super().delete([key])


class LowerCaseStore(MemoryObjectStore):
    """Keys lose their case."""

    async def put(self, key: str, content: bytes, *, only_new: bool = False) -> None:
        await super().put(key.lower(), content, only_new=only_new)

    def _found(self, key: str) -> tuple[bytes, int]:
        return super()._found(key.lower())


class ErrorStore(MemoryObjectStore):
    """A missing object is reported with the text of a library."""

    def _found(self, key: str) -> tuple[bytes, int]:
        try:
            return super()._found(key)
        except ObjectNotFoundError:
            raise ObjectNotFoundError(f"{key} not found\n\nDebug source:\nNotFound {{") from None


MUTANTS = [one for one in MemoryObjectStore.__subclasses__() if one.__module__ == __name__]


async def _breaks(check: Check, store: MemoryObjectStore) -> bool:
    try:
        await check(store)
    except (Exception, pytest.fail.Exception):
        return True
    return False


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
async def test_a_store_that_breaks_the_contract_is_found(
    mutant: type[MemoryObjectStore], autojump_clock: MockClock
) -> None:
    assert any([await _breaks(check, mutant()) for check in CHECKS])


async def test_the_store_itself_breaks_nothing(autojump_clock: MockClock) -> None:
    assert not any([await _breaks(check, MemoryObjectStore()) for check in CHECKS])
