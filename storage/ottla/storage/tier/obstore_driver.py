"""Object stores through the library obstore: S3, Google Cloud Storage, Azure, and a directory.

obstore needs an asyncio loop, which runs on its own thread. A cancelled call is abandoned
immediately; its request is cancelled soon after, and may still have its effect.

obstore is imported only when a store is opened. Limits of version 0.12:

- A directory (`file:`) is written without fsync: a power failure may lose objects that were stored
  shortly before. Directories of deleted objects remain.
- An upload that ends early leaves invisible parts in S3 (`put_stream`).
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.model.asyncio_thread_driver import AsyncioThread, open_asyncio_thread
from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint
from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.store_errors import store_error_of
from ottla.storage.tier.store_seam import (
    ObjectEntry,
    ObjectNotFoundError,
    ObjectStore,
    is_folder_prefix,
    is_plain_key,
)
from ottla.storage.tier.store_settings import (
    CA_FILE_KEY,
    URI_KEY,
    StoreLocation,
    StoreScheme,
    StoreSettings,
    checked_location,
)

if TYPE_CHECKING:
    from obstore import AsyncWritableFile, ListStream, ObjectMeta
    from obstore.store import ClientConfig, RetryConfig, S3Credential
    from obstore.store import ObjectStore as ObstoreClient

T = TypeVar("T")

CONNECT_TIMEOUT = timedelta(seconds=5)
REQUEST_TIMEOUT = timedelta(seconds=30)
"""Maximum duration of one request to an object store, including its body. To arrive in this time, a
part of 10 MiB must be sent at 350 kB/s or more. With a longer timeout, a request to a server that
is down is repeated later."""
RETRIES_MAX = 3
RETRY_TIMEOUT = timedelta(seconds=20)
"""Time after the first attempt at which obstore stops repeating a failed request. The repetitions
only cover short interruptions, such as a lost connection. Callers repeat failed calls themselves,
with longer pauses."""
PART_BYTES = 10 << 20
"""Size in bytes of one part of an upload. In S3, an object has at most 10,000 parts of at least 5
MiB. Larger parts need fewer requests and more memory."""
PARTS_AT_ONCE = 4
"""Maximum number of parts of one upload that are sent at the same time. They use at most 40 MiB of
memory, plus one part that is being filled."""
LIST_PAGE = 1000
"""Maximum number of objects in one response to a request that lists objects, as in S3."""
DELETE_BATCH = 1000
"""Number of objects that one call of obstore deletes. obstore divides the call into requests of the
size that the store supports."""


class ObstoreObjectStore:
    """Implementation of `ObjectStore` with the library obstore."""

    def __init__(
        self, thread: AsyncioThread, client: "ObstoreClient", secrets: Sequence[str]
    ) -> None:
        self._thread = thread
        self._client = client
        self._secrets = secrets

    async def put(self, key: str, content: bytes, *, only_new: bool = False) -> None:
        """Store an object, with one request."""
        import obstore

        async def call() -> None:
            await obstore.put_async(
                self._client,
                key,
                content,
                mode="create" if only_new else "overwrite",
                use_multipart=False,
            )

        assert is_plain_key(key)
        await self._run(key, call)

    async def put_stream(self, key: str, parts: AsyncIterable[bytes]) -> None:
        """Store an object whose parts are read during the upload."""
        import obstore

        async def begin() -> "AsyncWritableFile":
            return obstore.open_writer_async(
                self._client, key, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
            )

        assert is_plain_key(key)
        writer = await self._run(key, begin)
        async for part in parts:
            await self._run(key, partial(_write, writer, part))
        # A writer that is dropped without `close` stores nothing.
        await self._run(key, partial(_close, writer))

    async def get(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)` of an object."""
        import obstore

        async def call() -> bytes:
            found = await obstore.get_range_async(self._client, key, start=start, end=end)
            content: bytes = found.to_bytes()
            return content

        assert is_plain_key(key)
        assert 0 <= start < end
        return await self._run(key, call, needs_object=True)

    async def head(self, key: str) -> ObjectEntry:
        """Return the key, size and modification time of an object."""
        import obstore

        async def call() -> ObjectEntry:
            return _entry(await obstore.head_async(self._client, key))

        assert is_plain_key(key)
        return await self._run(key, call, needs_object=True)

    async def entries(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectEntry]:
        """Yield the objects whose keys begin with `prefix`. They are requested page by page."""
        import obstore

        async def begin() -> "ListStream[Sequence[ObjectMeta]]":
            return obstore.list(
                self._client, prefix or None, offset=after or None, chunk_size=LIST_PAGE
            )

        assert is_folder_prefix(prefix)
        stream = await self._run(prefix, begin)
        while (page := await self._run(prefix, partial(_next_page, stream))) is not None:
            for entry in page:
                if entry.key.startswith(prefix) and entry.key > after:
                    yield entry

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects with the keys in `keys`, with as few requests as the store permits."""
        import obstore

        async def call(batch: Sequence[str]) -> None:
            await obstore.delete_async(self._client, batch)

        assert all(map(is_plain_key, keys))
        for at in range(0, len(keys), DELETE_BATCH):
            batch = keys[at : at + DELETE_BATCH]
            try:
                await self._run(batch[0], partial(call, batch), needs_object=True)
            except ObjectNotFoundError:
                # Directories, Google Cloud Storage and Azure report a missing object as an error.
                for key in batch:
                    with suppress(ObjectNotFoundError):
                        await self._run(key, partial(call, [key]), needs_object=True)

    async def _run(
        self, key: str, start: Callable[[], Coroutine[Any, Any, T]], *, needs_object: bool = False
    ) -> T:
        from obstore.exceptions import BaseError

        try:
            return await self._thread.run(start)
        except (BaseError, OSError) as error:
            # Not chained: obstore's text may contain a signed URL.
            raise store_error_of(
                error, key, needs_object=needs_object, secrets=self._secrets
            ) from None


@asynccontextmanager
async def open_object_store(settings: StoreSettings) -> AsyncIterator[ObjectStore]:
    """Open the object store that the settings describe, and yield the store. It is closed at the
    end of the block.

    Opening sends no request: a store that is down, or refuses this node, is noticed at the first
    call. Raises ConfigError if a setting is invalid, if the directory of a `file:` URI does not
    exist, or if obstore is not installed.
    """
    location = checked_location(settings)
    if location.scheme is StoreScheme.MEMORY:
        yield MemoryObjectStore()
        return
    try:
        from obstore.exceptions import BaseError
    except ImportError:
        raise ConfigError(
            URI_KEY, f"needs a package that is not installed: {install_hint('tiered')}"
        ) from None
    secrets = (settings.secret_access_key, settings.access_key_id)
    try:
        client = _client_of(settings, location)
    except (BaseError, OSError, ValueError) as error:
        sentence = str(store_error_of(error, "", needs_object=False, secrets=secrets))
        raise ConfigError(URI_KEY, sentence) from None
    async with open_asyncio_thread("ottla-object-store") as thread:
        yield ObstoreObjectStore(thread, client, secrets)


def _client_of(settings: StoreSettings, location: StoreLocation) -> "ObstoreClient":
    from obstore.store import AzureStore, GCSStore, LocalStore, S3Store

    prefix = location.prefix or None
    options = _client_options(settings)
    retries: RetryConfig = {"max_retries": RETRIES_MAX, "retry_timeout": RETRY_TIMEOUT}
    config: Any = {  # obstore reads the settings that are missing here from the environment
        name: value
        for name, value in _names_of_settings(settings, location.scheme).items()
        if value
    }
    match location.scheme:
        case StoreScheme.FILE:
            if not Path(location.prefix).is_dir():
                # Not created here: the directory of a file system that is not mounted is missing.
                raise ConfigError(URI_KEY, f"there is no directory {location.prefix}; create it")
            return LocalStore(location.prefix)
        case StoreScheme.GOOGLE:
            return GCSStore(
                location.bucket,
                prefix=prefix,
                config=config,
                client_options=options,
                retry_config=retries,
            )
        case StoreScheme.AZURE:
            return AzureStore(
                location.bucket,
                prefix=prefix,
                config=config,
                client_options=options,
                retry_config=retries,
            )
        case _:
            assert location.scheme is StoreScheme.S3
            return S3Store(
                location.bucket,
                prefix=prefix,
                config=config,
                client_options=options,
                retry_config=retries,
                credential_provider=_s3_credentials(settings),
            )


def _s3_credentials(settings: StoreSettings) -> "Callable[[], S3Credential] | None":
    """Return a function that returns the S3 credentials in the settings. Returns None if the
    settings contain no credentials.

    A function is used because obstore would combine credentials in its configuration with a session
    token from the environment.
    """
    if not settings.access_key_id:
        return None
    return lambda: {
        "access_key_id": settings.access_key_id,
        "secret_access_key": settings.secret_access_key,
        "token": None,
        "expires_at": None,
    }


def _names_of_settings(settings: StoreSettings, scheme: StoreScheme) -> dict[str, str]:
    """Return the configuration of obstore for `settings`, by obstore's names."""
    endpoint = settings.endpoint.removesuffix("/")
    match scheme:
        case StoreScheme.S3:
            return {"endpoint": endpoint, "region": settings.region}
        case StoreScheme.AZURE:
            return {
                "account_name": settings.access_key_id,
                "account_key": settings.secret_access_key,
                "endpoint": endpoint,
            }
        case StoreScheme.GOOGLE:
            return {"service_account_key": settings.secret_access_key, "base_url": endpoint}
        case _:
            return {}


def _client_options(settings: StoreSettings) -> "ClientConfig":
    options: ClientConfig = {
        "connect_timeout": CONNECT_TIMEOUT,
        "timeout": REQUEST_TIMEOUT,
        "allow_http": settings.endpoint.startswith("http://"),
    }
    if settings.ca_file:
        try:
            options["root_certificate"] = Path(settings.ca_file).read_bytes()
        except OSError as error:
            raise ConfigError(CA_FILE_KEY, f"cannot be read: {error.strerror or error}") from None
    return options


async def _write(writer: "AsyncWritableFile", part: bytes) -> None:
    await writer.write(part)


async def _close(writer: "AsyncWritableFile") -> None:
    await writer.close()


async def _next_page(
    stream: "ListStream[Sequence[ObjectMeta]]",
) -> list[ObjectEntry] | None:
    try:
        page = await stream.__anext__()
    except StopAsyncIteration:
        return None
    return [_entry(meta) for meta in page]


def _entry(meta: "ObjectMeta") -> ObjectEntry:
    return ObjectEntry(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))
