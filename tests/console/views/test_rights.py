"""Pages of topics and records with the rights of a user: only what ACLs allow is shown."""

from dataclasses import replace

import trio

from ottla.client import open_admin, open_producer
from ottla.client.testing import open_test_cluster
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.client import ProducerConfig
from tests.console.console_fixture import open_browser


def allow(operation: AclOperation, topic: str) -> AclEntry:
    return AclEntry(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        pattern_type=PatternType.LITERAL,
        principal="User:bob",
        host="*",
        operation=operation,
        permission=AclPermission.ALLOW,
    )


async def test_a_user_sees_only_what_acls_allow() -> None:
    with trio.fail_after(150):
        async with (
            open_test_cluster(is_secure=True) as cluster,
            open_admin(cluster.bootstrap, security=cluster.security) as admin,
        ):
            security = cluster.security
            assert security is not None
            for topic in ("orders", "salaries"):
                await admin.create_topic(topic)
            config = ProducerConfig(
                **{name: getattr(security, name) for name in security.__dataclass_fields__}
            )
            async with open_producer(cluster.bootstrap, config) as producer:
                await producer.send("orders", b"17 apples")
            await admin.set_password("bob", str(security.sasl_mechanism), "bobs-secret")
            own = replace(security, sasl_username="bob", sasl_password="bobs-secret")
            async with (
                open_admin(cluster.bootstrap, security=own) as guest,
                open_browser(guest) as browser,
            ):
                assert "There is no topic yet." in await browser.get("/topics")
                await admin.create_acls([allow(AclOperation.DESCRIBE, "orders")])
                html = ""
                while "orders" not in html:  # the broker applies its metadata
                    html = await browser.get("/topics")
                assert "salaries" not in html
                await browser.get("/topics/orders")
                assert "apples" not in await browser.get("/topics/orders/records", 403)
                assert "apples" not in await browser.get("/topics/orders/records/0/0", 403)
                for path in ("", "/settings", "/records", "/records/0/0"):
                    await browser.get(f"/topics/salaries{path}", 403)
                refused = await browser.post("/topics/orders/delete", {"confirm": "orders"})
                assert refused.status_code == 403
                refused = await browser.post("/topics/create", {"name": "mine"})
                assert refused.status_code == 403
                await admin.create_acls([allow(AclOperation.READ, "orders")])
                response = None
                while response is None or response.status_code == 403:
                    response = await browser.http.get("/topics/orders/records")
                assert "17 apples" in response.text
