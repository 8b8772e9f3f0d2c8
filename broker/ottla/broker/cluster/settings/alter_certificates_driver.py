"""Tests new certificates of listeners, before AlterConfigs and IncrementalAlterConfigs requests
that set them are accepted.

Only the broker that owns the certificates can test them, so only that broker accepts such a change.
A refused change never becomes a metadata record. An accepted change is already in use when the
client receives the response, because the response waits until this broker has published the new
metadata image. Publishing includes loading the certificates. Requests above a size limit are
refused, because checking them would take too long.
"""

from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

import trio

from ottla.broker.cluster.settings.split_changes import ChangeRequest as Request
from ottla.broker.cluster.settings.split_changes import split_changes
from ottla.metadata.records import BROKER_RESOURCE
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import parse_node_id
from ottla.model.security.acls import AclOperation
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.resources import AlterOperation, ConfigKind
from ottla.model.settings.security.dynamic_tls import is_listener_tls_key
from ottla.node.admin.alter_configs import ForwardHandler
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.authorization.questions import may_on_cluster
from ottla.node.network.dispatch import Dispatcher, Handler, HandlerResult, RequestContext
from ottla.node.network.steps import Answer, StepPace, begun
from ottla.wire.apis import ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from ottla.wire.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterConfigsResource as AlteredResource,
)

CHANGES_MAX = 200
"""Maximum number of settings in a request that changes the certificates of listeners. With a larger
value, a client can block the event loop longer."""

TRIED_WITHIN_S = 10.0
"""Maximum seconds for reading the certificate files that a request names. A change that takes
longer to test is refused."""

Resource: TypeAlias = AlteredResource | AlterConfigsResource
Changes: TypeAlias = dict[str, str | None]

TOO_MANY = RefusedError(
    ErrorCode.INVALID_REQUEST,
    f"A request that changes certificates may have up to {CHANGES_MAX} settings; send them apart",
)


class OwnCertificates(Protocol):
    """Certificates of this broker's listeners. New settings can be tested with them before the
    settings are accepted."""

    async def check(self, overrides: Mapping[str, str], keys: Collection[str]) -> None:
        """Test the certificate settings that would result from a request to change settings. Raises
        ConfigError if the certificates cannot be used.

        `keys` are the settings that the request sets.
        """
        ...


class AlterCertificates:
    """Tests of certificate changes, which run before the handlers of IncrementalAlterConfigs and
    AlterConfigs."""

    def __init__(
        self, config: BrokerConfig, certificates: OwnCertificates, metadata: MetadataCache
    ) -> None:
        self._node_id = config.node_id
        self._certificates = certificates
        self._metadata = metadata
        # One change at a time, so that the tested settings are those that will be used.
        self._lock = trio.Lock()

    def wrap_handlers(self, dispatcher: Dispatcher) -> None:
        """Wrap the registered handlers of AlterConfigs and IncrementalAlterConfigs, so that changes
        of certificates are tested first."""
        for api_key in (INCREMENTAL_ALTER_CONFIGS, ALTER_CONFIGS):
            dispatcher.wrap(api_key, self._before)

    def _before(self, handler: Handler) -> Handler:
        # Both APIs are decided by the controller, so that their handlers have this type.
        forward = cast(ForwardHandler, handler)

        def handle(context: RequestContext, request: Request) -> HandlerResult:
            return begun(self._answer(context, request, forward))

        return handle

    def _answer(self, context: RequestContext, request: Request, forward: ForwardHandler) -> Answer:
        pace = StepPace()
        found: list[int] = []
        change_count = 0
        resources: Sequence[Any] = request.resources
        for index, resource in enumerate(resources):
            change_count += 1 + len(resource.configs)
            if resource.resource_type == ConfigKind.BROKER and self._changes_certificates(
                request, resource
            ):
                found.append(index)
            if pace.is_due(1 + len(resource.configs)):
                yield
        if not found or not may_on_cluster(context.permissions, AclOperation.ALTER_CONFIGS):
            return forward(context, request)
        if change_count > CHANGES_MAX:
            _, merge = split_changes(request, dict.fromkeys(range(len(resources)), TOO_MANY))
            return merge(None)
        return self._tried(context, request, found, forward)

    def _changes_certificates(self, request: Request, resource: Resource) -> bool:
        """Return whether a request changes the certificate settings of a resource (such as a
        broker). AlterConfigs also changes a certificate setting if the request omits it."""
        if any(is_listener_tls_key(change.name) for change in resource.configs):
            return True
        is_replaced = isinstance(request, AlterConfigsRequest)
        return is_replaced and bool(self._overrides(resource.resource_name))

    def _overrides(self, name: str) -> dict[str, str]:
        texts = self._metadata.image.config(BROKER_RESOURCE, name)
        return {key: text for key, text in texts.items() if is_listener_tls_key(key)}

    async def _tried(
        self,
        context: RequestContext,
        request: Request,
        found: Iterable[int],
        forward: ForwardHandler,
    ) -> Any:
        async with self._lock:
            refused: dict[int, RefusedError] = {}
            for index in found:
                try:
                    await self._try_out(request, request.resources[index])
                except RefusedError as refusal:
                    refused[index] = refusal
            rest, merge = split_changes(request, refused)
            if not rest.resources:
                return merge(None)
            result: Any = forward(context, rest, merge)
            return await result if isinstance(result, Coroutine) else result

    async def _try_out(self, request: Request, resource: Resource) -> None:
        """Test the certificate settings that would result from a request to change settings. Raises
        RefusedError with the reason if they cannot be used."""
        name = resource.resource_name
        if not name or parse_node_id(name) is None:
            return  # The controller refuses the change.
        before = self._overrides(name)
        is_replaced = isinstance(request, AlterConfigsRequest)
        changes: Changes = dict.fromkeys(before) if is_replaced else {}
        for change in resource.configs:
            if is_listener_tls_key(change.name):
                changes[change.name] = self._new_text(request, change)
        if name != str(self._node_id):
            self._check_others(name, changes)
            return
        after = {key: text for key, text in {**before, **changes}.items() if text is not None}
        keys = [key for key, text in changes.items() if text is not None]
        try:
            with trio.fail_after(TRIED_WITHIN_S):
                await self._certificates.check(after, keys)
        except ConfigError as error:
            raise RefusedError(ErrorCode.INVALID_REQUEST, str(error)) from None
        except trio.TooSlowError:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"Files of certificates could not be read within {TRIED_WITHIN_S:.0f} s",
            ) from None

    def _check_others(self, name: str, changes: Changes) -> None:
        """Raise RefusedError for changes to another broker's certificates, which that broker must
        test. Settings of a broker that is not registered may be removed."""
        other = parse_node_id(name)
        is_gone = other is None or not self._metadata.image.is_active(other)
        if is_gone and all(text is None for text in changes.values()):
            return
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {self._node_id} but received {name}: a broker's "
            "certificates are changed by a request to itself",
        )

    @staticmethod
    def _new_text(request: Request, change: Any) -> str | None:
        if isinstance(request, AlterConfigsRequest):
            text: str | None = change.value
            return text
        if change.config_operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            raise RefusedError(
                ErrorCode.INVALID_CONFIG,
                f"Can't {AlterOperation(change.config_operation).name} to key {change.name} "
                "because its type is not LIST.",
            )
        return None if change.config_operation == AlterOperation.DELETE else change.value
