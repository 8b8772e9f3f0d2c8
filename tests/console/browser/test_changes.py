"""Changes that a reader makes in the forms of the screens, checked by the admin client."""

from confluent_kafka import Consumer

from ottla.client import ConfigKind, ConfigResource, open_producer
from ottla.client.admin import Admin
from ottla.model.ids import TopicPartition
from ottla.model.security.acls import AclFilter
from ottla.wire.messages.write_snapshot_request import WriteSnapshotRequest
from ottla.wire.messages.write_snapshot_response import WriteSnapshotResponse
from tests.console.browser.busy_data import ask, write_lost_transaction
from tests.console.browser.conftest import OpenTab
from tests.console.views.test_queue_redrive import LETTERS, REJECTED, end_of_orders, write_letter


def test_a_topic_is_created_changed_and_deleted(open_tab: OpenTab, bootstrap: str) -> None:
    tab = open_tab()
    tab.open("/topics")
    tab.submit("/topics/create", {"name": "news", "partitions": "2"})
    assert "Topic news was created." in tab.text()
    tab.open("/topics/news")
    tab.submit("/topics/news/partitions/add", {"total": "3"})
    described = ask(bootstrap, lambda admin: admin.describe_topic("news"))
    assert len(described.partitions) == 3
    tab.open("/topics/news/settings")
    tab.submit("/topics/news/settings/alter", {"key": "max.message.bytes", "value": "5000"})
    configs = ask(bootstrap, lambda admin: admin.topic_configs("news"))
    assert configs["max.message.bytes"].value == "5000"
    tab.open("/topics/news/records")
    record = {"value": '{"a": 1}', "key": "k", "no_key": ""}
    tab.submit("/topics/news/records/produce", record)
    tab.open("/topics/news/records?from=oldest&filter=value.a+%3D+1")
    assert '"a"' in tab.text()
    tab.open("/topics/news")
    button = tab.tab.locator('form[action="/topics/news/delete"] button[type=submit]')
    assert button.is_disabled()
    tab.submit("/topics/news/delete", {"confirm": "news"})
    assert "news" not in ask(bootstrap, lambda admin: admin.list_topics())


def test_a_group_is_reset_and_deleted(open_tab: OpenTab, bootstrap: str) -> None:
    orders = TopicPartition("orders", 0)

    async def create(admin: Admin) -> None:
        await admin.alter_group_offsets("reports", {orders: 2})

    ask(bootstrap, create)
    tab = open_tab()
    tab.open("/groups")
    with tab.tab.expect_navigation():
        tab.tab.locator("#rows").get_by_role("link", name="reports", exact=True).click()
    tab.open("/groups/reports/reset?to=earliest")
    tab.submit("/groups/reports/reset", {})
    offsets = ask(bootstrap, lambda admin: admin.group_offsets("reports"))
    assert offsets[orders].offset == 0
    tab.open("/groups/reports/reset")
    tab.submit("/groups/reports/delete", {"confirm": "reports"})
    groups = ask(bootstrap, lambda admin: admin.list_groups())
    assert "reports" not in {one.group_id for one in groups}


def test_a_limit_is_set_and_removed(open_tab: OpenTab, bootstrap: str) -> None:
    tab = open_tab()
    limit = {"user": "bob", "key": "producer_byte_rate", "value": "5000"}
    for value, expected in (("5000", [5000.0]), ("", [])):
        tab.open("/quotas")
        tab.submit("/quotas/change", limit | {"value": value})
        quotas = ask(bootstrap, lambda admin: admin.describe_quotas())
        found = [
            one.get("producer_byte_rate") for owner, one in quotas.items() if "bob" in str(owner)
        ]
        assert found == expected


def test_a_user_and_its_acl_are_created_and_deleted(open_tab: OpenTab, bootstrap: str) -> None:
    tab = open_tab()
    tab.open("/users")
    tab.submit("/users-password", {"user": "carol", "password": "a long password"})
    assert "carol" in ask(bootstrap, lambda admin: admin.describe_users())
    tab.open("/acls")
    acl = {"principal": "carol", "operation": "read", "resource": "topic", "name": "clicks"}
    tab.submit("/acls", acl)
    entries = ask(bootstrap, lambda admin: admin.describe_acls(AclFilter(principal="User:carol")))
    assert [one.resource_name for one in entries] == ["clicks"]
    tab.open("/acls?q=carol")
    with tab.tab.expect_navigation():
        tab.tab.locator('#rows a[href^="/acl?"]').first.click()
    tab.submit("/acls/User%3Acarol/delete", {"confirm": "User:carol"})
    assert not ask(bootstrap, lambda admin: admin.describe_acls(AclFilter(principal="User:carol")))
    tab.open("/users/carol")
    tab.submit("/users/carol/delete", {"confirm": "carol"})
    assert "carol" not in ask(bootstrap, lambda admin: admin.describe_users())


def test_a_subscription_to_metrics_is_set_and_deleted(open_tab: OpenTab, bootstrap: str) -> None:
    tab = open_tab()
    for action, expected in (("set", ["latencies"]), ("delete", [])):
        tab.open("/telemetry")
        tab.submit(f"/telemetry-subscriptions/{action}", {"name": "latencies"})
        found = ask(bootstrap, lambda admin: admin.list_metrics_subscriptions())
        assert [one.name for one in found] == expected


def test_a_refused_change_shows_its_reason(open_tab: OpenTab, bootstrap: str) -> None:
    tab = open_tab()
    tab.open("/topics")
    tab.submit("/topics/create", {"name": "orders"})
    assert "TOPIC_ALREADY_EXISTS" in tab.text()
    tab.open("/compaction")
    tab.submit("/compaction/run", {"topic": "orders", "partition": "0", "broker": "1"})
    assert "orders" in tab.text()


def test_a_snapshot_of_the_metadata_is_written(open_tab: OpenTab, bootstrap: str) -> None:
    async def latest(admin: Admin) -> int:
        message = WriteSnapshotRequest(validate_only=True)
        return (await admin.cluster.request(message, WriteSnapshotResponse)).latest_end_offset

    before = ask(bootstrap, latest)
    ask(bootstrap, lambda admin: admin.create_topic("snapped", partition_count=1))
    tab = open_tab()
    tab.open("/quorum")
    tab.submit("/quorum/snapshot", {})
    assert "has written a snapshot" in tab.text()
    assert ask(bootstrap, latest) > before
    tab.open("/quorum/voters")
    tab.submit("/quorum/unregister", {"node": "77"})
    assert "77" in tab.text()
    tab.open("/quorum/log")
    tab.follow("Quorum")
    assert tab.path() == "/quorum"


def test_the_level_of_a_feature_is_lowered_and_raised(open_tab: OpenTab, bootstrap: str) -> None:
    name = "eligible.leader.replicas.version"
    tab = open_tab()
    tab.open("/features")
    for path, level in (("/features/downgrade", 0), ("/features/upgrade", 1)):
        form = {"feature": name, "level": str(level)}
        tab.submit(path, form | ({"confirm": "downgrade"} if level == 0 else {}))
        assert f"Feature {name} has level {level}." in tab.text()
        features = ask(bootstrap, lambda admin: admin.describe_features())
        assert features[name].finalized == level
    tab.submit("/features/upgrade", {"feature": name, "level": "9"})
    assert "level 9" not in tab.text()
    assert "refused" in tab.text().lower() or "INVALID" in tab.text()


def test_offsets_of_a_queue_are_reset_and_deleted(open_tab: OpenTab, bootstrap: str) -> None:
    orders = TopicPartition("orders", 0)
    ask(bootstrap, lambda admin: admin.alter_share_group_offsets("packers", {orders: 3}))
    tab = open_tab()
    tab.open("/queues")
    tab.follow("packers")
    tab.follow("Reset or delete")
    tab.open("/queues/packers/reset?to=earliest")
    tab.submit("/queues/packers/reset", {})
    offsets = ask(bootstrap, lambda admin: admin.share_group_offsets("packers"))
    assert offsets[orders].start_offset == 0
    tab.open("/queues/packers/reset")
    tab.submit("/queues/packers/offsets/delete", {"topic": "orders", "confirm": "packers"})
    assert not ask(bootstrap, lambda admin: admin.share_group_offsets("packers"))
    tab.open("/queues/packers/reset")
    tab.submit("/queues/packers/delete", {"confirm": "packers"})
    groups = ask(bootstrap, lambda admin: admin.list_groups())
    assert "packers" not in {one.group_id for one in groups}


def test_dead_letters_are_moved_back(open_tab: OpenTab, bootstrap: str) -> None:
    async def write(admin: Admin) -> int:
        enabled = {"errors.deadletterqueue.group.enable": "true"}
        await admin.create_topic(LETTERS, partition_count=1, configs=enabled)
        named = {"errors.deadletterqueue.topic.name": LETTERS}
        await admin.alter_configs(ConfigResource(ConfigKind.GROUP, "g"), named)
        await admin.alter_share_group_offsets("g", {TopicPartition("orders", 0): 0})
        async with open_producer(bootstrap) as producer:
            await write_letter(producer, 0, REJECTED)
        return await end_of_orders(admin)

    end = ask(bootstrap, write)
    tab = open_tab()
    tab.open("/queues/g")
    tab.follow("Dead letters")
    tab.open("/queues/g/redrive?show=yes")
    tab.submit("/queues/g/redrive", {})
    tab.tab.get_by_text("1 dead letter of dlq.orders moved").first.wait_for()
    # The commit marker of a transaction has an offset, too.
    assert ask(bootstrap, end_of_orders) > end


def test_a_lost_transaction_is_aborted(open_tab: OpenTab, bootstrap: str) -> None:
    at = TopicPartition("deposits", 0)
    start = ask(bootstrap, lambda admin: write_lost_transaction(admin, "deposits"))
    tab = open_tab()
    tab.open("/topics/deposits")
    tab.open("/transactions-of/deposits")
    assert "no coordinator knows it" in tab.text()
    tab.submit(f"/transactions-of/deposits/0/{start}/abort", {"confirm": "deposits"})
    assert "was aborted" in tab.text()
    (producers,) = ask(bootstrap, lambda admin: admin.describe_producers([at])).values()
    assert [one.transaction_start for one in producers] == [None]


def test_a_member_is_removed_from_its_group(open_tab: OpenTab, bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "team"})
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(0.1)
    (member,) = ask(bootstrap, lambda admin: admin.describe_group("team")).members
    tab = open_tab()
    tab.open("/groups/team")
    tab.follow("Members")
    form = {"member": f"member:{member.member_id}", "confirm": "team"}
    tab.submit("/groups/team/members/remove", form)
    assert "1 member removed." in tab.text()
    # It joins again only when it polls.
    assert ask(bootstrap, lambda admin: admin.describe_group("team")).members == ()
    consumer.close()
