"""A broker without the ACL to write client telemetry logs the ACL that is missing."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import trio

from ottla.broker.metrics.telemetry_topic_driver import MAY_NOT, TelemetryTopic
from ottla.client.network.login import LOGIN
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.acls import AclOperation, ResourceType
from ottla.model.settings.security.sasl import SaslLogin
from ottla.node.local.secure_cluster_driver import allow
from ottla.telemetry.exporters.topic_exporter_driver import TOPIC, TopicRecord
from tests.broker.authorization.conftest import PASSWORD, SecuredBroker

TIMEOUT_S = 60
AS_AL = SaslLogin(mechanism="PLAIN", username="al", password=PASSWORD)
RECORD = TopicRecord(b"key", b"value", 1_760_000_000_000)


async def test_a_broker_that_may_not_create_or_write_the_topic_names_the_entries(
    open_secured: Callable[..., AbstractAsyncContextManager[SecuredBroker]],
) -> None:
    async with open_secured(["al"]) as secured, trio.open_nursery() as nursery:
        topic = TelemetryTopic(lambda: secured.address)

        async def refusal() -> RefusedError | None:
            """Write as al; return how that was refused."""
            before = LOGIN.set(AS_AL)
            try:
                await topic.send([RECORD])
            except RefusedError as error:
                return error
            finally:
                LOGIN.reset(before)
            return None

        async def until(code: ErrorCode | None) -> str:
            """Write until the result has an error code; return the log line."""
            while True:
                found = await refusal()
                if (None if found is None else found.code) is code:
                    return str(found)
                await trio.sleep(0.01)

        before = LOGIN.set(AS_AL)
        nursery.start_soon(topic.run)
        LOGIN.reset(before)
        with trio.fail_after(TIMEOUT_S):
            assert MAY_NOT in await until(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            create = allow("User:al", ResourceType.TOPIC, AclOperation.CREATE, name=TOPIC)
            await secured.use(create)
            assert MAY_NOT in await until(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            write = allow("User:al", ResourceType.TOPIC, AclOperation.WRITE, name=TOPIC)
            await secured.use([*create, *write])
            await until(None)
        nursery.cancel_scope.cancel()
