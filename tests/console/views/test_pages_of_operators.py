"""Pages of operators: refused rights, clusters of Apache Kafka, reports from folders, changes."""

import re
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.client.admin import open_admin
from ottla.client.admin_parts.admin_brokers import BrokerDescription, ClusterDescription
from ottla.client.admin_parts.admin_cluster import (
    FeatureLevels,
    QuorumDescription,
    QuorumReplica,
)
from ottla.client.groups.group_offsets import Committed
from ottla.client.testing import open_test_cluster
from ottla.console.page_types import ConsoleConfig, Page
from ottla.console.pages import PAGES
from ottla.console.views.security import acl_fields, entry_of
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import ZERO_UUID, Epoch, NodeId, Offset, TopicPartition
from ottla.model.security.acls import AclFilter
from ottla.wire.messages.metadata_response import MetadataResponse, MetadataResponseBroker
from tests.console.console_fixture import NOW_MS, FakeAdmin, open_browser

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202e"
MODULES = (
    "alerts", "broker_changes", "certificates", "compaction", "explain", "features", "group_list",
    "group_page", "group_reset", "long_actions", "metrics", "moves", "node_plots", "queue_redrive",
    "queues",
    "quorum", "quotas", "reports", "retention", "security", "settings", "telemetry", "tiers",
    "tokens",
    "transactions", "voters",
)  # fmt: skip
OWN_ONLY = (
    "/moves",
    "/telemetry",
    "/telemetry/a",
    "/compaction",
    "/metrics-of-nodes",
    "/metrics-of-nodes/plots",
    "/quotas/usage",
    "/quorum/log",
    "/quorum",
)


def module_of(page: Page) -> str:
    view = getattr(page.view, "func", page.view)
    return str(view.__module__).rpartition(".")[2]


class AdminWithoutRights:
    """Admin client whose requests are all refused for lack of a right."""

    class Cluster:
        async def metadata(self, _topics: object = None) -> MetadataResponse:
            return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1)])

        def __getattr__(self, _name: str) -> Any:
            return _denied

    cluster = Cluster()

    async def describe_features(self, _node: int | None = None) -> dict[str, FeatureLevels]:
        return {"ottla.version": FeatureLevels(1, 0, 2)}

    async def describe_cluster(self, **_: object) -> ClusterDescription:
        brokers = (BrokerDescription(NodeId(1), "127.0.0.1", 1, None),)
        return ClusterDescription("id", NodeId(1), brokers)

    def __getattr__(self, _name: str) -> Any:
        return _denied


async def _denied(*_: object, **_named: object) -> None:
    raise RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"denied for {HOSTILE}")


@pytest.mark.parametrize(
    "page", [one for one in PAGES if module_of(one) in MODULES], ids=lambda one: one.name
)
async def test_a_page_without_rights_names_the_reason(page: Page) -> None:
    where = page.path
    for name in (
        "action",
        "broker",
        "client",
        "plan",
        "group",
        "topic",
        "id",
        "user",
        "report",
        "file",
    ):
        where = where.replace(f"{{{name}}}", "a%2Fb%1B%3Cscript%3E")
    where = where.replace("{partition}", "0")
    with trio.fail_after(60):
        async with open_browser(AdminWithoutRights()) as browser:
            response = await browser.http.get(where)
    # 400: a form is not filled in; 403 and 404: the page is about one thing that is refused.
    assert response.status_code in (200, 303, 400, 403, 404), response.text[-3_000:]
    assert "<img src=x" not in response.text
    assert "<script>" not in response.text
    assert "\x1b" not in response.text


async def test_the_rules_for_prometheus_are_shown_with_their_commands() -> None:
    async with open_browser(AdminWithoutRights()) as browser:
        html = await browser.get("/alerts")
    assert "OttlaHangingTransactions" in html
    assert "ottla txn find-hanging" in html
    assert "partitionswithlatetransactionscount) &gt; 0" in html


@pytest.mark.parametrize("where", OWN_ONLY)
async def test_requests_of_ottla_are_marked_on_other_clusters(where: str) -> None:
    async def features(_node: int | None = None) -> dict[str, FeatureLevels]:
        return {"kraft.version": FeatureLevels(1, 0, 1)}

    admin = AdminWithoutRights()
    admin.describe_features = features  # type: ignore[method-assign]  # the cluster is Kafka's
    async with open_browser(admin) as browser:
        assert "not available on this cluster" in await browser.get(where)


async def test_quotas_users_and_acls_are_changed() -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    async with (
        open_test_cluster(settings=settings) as cluster,
        open_admin(cluster.bootstrap) as admin,
        open_browser(admin) as browser,
    ):
        with trio.fail_after(60):
            limit = {"user": HOSTILE, "key": "producer_byte_rate", "value": "5000"}
            html = await browser.act("/quotas/change", limit)
            assert "<img src=x" not in html
            assert "5,000" in html
            html = await browser.act("/quotas/change", {**limit, "value": ""})
            assert "5,000" not in html
            password = {"user": "alice", "mechanism": "SCRAM-SHA-256", "password": "s3cret-word"}
            html = await browser.act("/users-password", password)
            assert "SCRAM-SHA-256" in html
            assert "s3cret-word" not in html + str(browser.audit.lines)
            acl = {
                "principal": "alice", "permission": "deny", "operation": "read",
                "resource": "topic", "name": "orders", "pattern": "prefixed", "host": "",
            }  # fmt: skip
            assert "User:alice" in await browser.act("/acls", acl)
            (entry,) = await admin.describe_acls(AclFilter())
            assert entry == entry_of(acl_fields(entry))
            html = await browser.get("/users/alice")
            assert "prefixed" in html
            gone = {**acl_fields(entry), "confirm": entry.principal}
            await browser.act("/acls/User%3Aalice/delete", gone)
            assert await admin.describe_acls(AclFilter()) == []
            await browser.act("/users/alice/delete", {"confirm": "alice"})
            assert "alice" not in await admin.describe_users()


@pytest.mark.parametrize(
    "wrong",
    [{"resource": "planet"}, {"operation": "fly"}, {"permission": "maybe"}, {"name": ""},
     {"pattern": "any"}, {"principal": ""}],
)  # fmt: skip
def test_an_incomplete_acl_is_refused(wrong: dict[str, str]) -> None:
    right = {
        "principal": "a", "permission": "allow", "operation": "read", "resource": "topic",
        "name": "t",
    }  # fmt: skip
    entry_of(right)
    with pytest.raises(ConfigError):
        entry_of(right | wrong)


async def test_reports_are_read_only_below_their_folders(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    run = folder / "kill-17"
    (run / "logs").mkdir(parents=True)
    (run / "results.json").write_text('{"valid": true, "name": "<b>bold</b>"}')
    (run / "logs" / "node.log").write_text("started\x1b[31m\n")
    (tmp_path / "secret.txt").write_text("do not read")
    (run / "link.txt").symlink_to(tmp_path / "secret.txt")
    config = ConsoleConfig(report_folders=(str(folder),))
    async with open_browser(FakeAdmin(), config=config) as browser:
        assert "kill-17" in await browser.get("/reports")
        html = await browser.get("/reports/kill-17")
        assert "&#34;valid&#34;: true" in html
        assert "<b>bold" not in html
        assert "link.txt" not in html
        html = await browser.get("/reports/kill-17/logs%2Fnode.log")
        assert "started\\x1b[31m" in html
        for name in ("..%2F..%2Fsecret.txt", "link.txt", "%2Fetc%2Fpasswd", "~.."):
            await browser.get(f"/reports/kill-17/{name}", status=404)
        await browser.get("/reports/~..", status=404)


@pytest.mark.parametrize("where", ["/quotas", "/telemetry", "/groups/g/reset", "/quorum", "/acls"])
async def test_ids_of_a_page_are_unique(where: str) -> None:
    """Labels name their fields by id, so a screen reader needs them to be unique."""

    class Admin(AdminWithoutRights):
        async def describe_quotas(self) -> dict[object, object]:
            return {}

        async def describe_acls(self, _wanted: object) -> list[object]:
            return []

        async def list_metrics_subscriptions(self) -> list[object]:
            return []

        async def group_offsets(self, _group: str) -> dict[TopicPartition, Committed]:
            return {TopicPartition("orders", 0): Committed(Offset(1))}

        async def ask_quorum(self) -> QuorumDescription:
            voters = tuple(
                QuorumReplica(NodeId(node), ZERO_UUID, Offset(1), NOW_MS, NOW_MS)
                for node in (101, 102, 103)
            )
            return QuorumDescription(NodeId(101), Epoch(7), Offset(500), voters, (), {})

    async with open_browser(Admin()) as browser:
        html = await browser.get(where)
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids)), sorted(ids)
    assert set(re.findall(r' for="([^"]+)"', html)) <= set(ids)


async def test_the_page_of_a_lost_quorum_asks_for_nothing_else() -> None:
    async def ask_quorum() -> QuorumDescription:
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, "no controller was active")

    # Any other call of the fake client is an error.
    async with open_browser(FakeAdmin(ask_quorum=ask_quorum)) as browser:
        assert "no controller was active" in await browser.get("/quorum")


async def test_a_password_is_set_for_the_user_of_the_page() -> None:
    names: list[str] = []

    async def describe_users() -> dict[str, object]:
        return {HOSTILE: []}

    async def describe_acls(_: object) -> list[object]:
        return []

    async def set_password(name: str, *_: object, **__: object) -> None:
        names.append(name)

    admin = FakeAdmin(
        describe_users=describe_users, describe_acls=describe_acls, set_password=set_password
    )
    form = {"mechanism": "SCRAM-SHA-256", "password": "s3cret-word"}
    async with open_browser(admin) as browser:
        html = await browser.get(browser.address("user", user=HOSTILE))
        assert 'name="user"' not in html
        (where,) = re.findall(r'action="(/users/[^"]*/password)"', html)
        await browser.act(where, {**form, "user": "another"})
        await browser.act("/users-password", {**form, "user": " alice "})
        assert 'name="user"' in await browser.get("/users")
    assert names == [HOSTILE, "alice"]


async def test_each_column_of_a_clients_limits_has_a_title() -> None:
    async def describe_quotas() -> dict[object, object]:
        return {}

    async with open_browser(FakeAdmin(describe_quotas=describe_quotas)) as browser:
        html = await browser.get("/quotas/explain?user=a&client_id=b")
    titles = re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", html, re.DOTALL)
    assert titles
    assert all(re.sub("<[^>]*>", "", one).strip() for one in titles)
