"""Changes of replicas and voters in a cluster of several nodes (OTTLA_BROWSER_CLUSTER=3+3), checked
by the admin client."""

from collections.abc import Iterator

import pytest

from ottla.client import ConfigKind, ConfigResource
from ottla.client.admin import Admin
from ottla.client.producer import open_producer
from ottla.insight.changes.voter_changes_driver import described_quorum
from ottla.insight.facts.stored_plan import StoredPlan, read_stored_plan
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.balance import BALANCE_RATE_MAX
from tests.cluster.conftest import Processes
from tests.console.browser.busy_data import ask
from tests.console.browser.conftest import OpenTab

MOVED = TopicPartition("moved", 0)
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RECORD_BYTES, RECORD_COUNT = 100_000, 40
PATIENCE_S = 60.0


@pytest.fixture
def nodes(processes: Processes | None) -> Iterator[Processes]:
    """Provide a cluster of several brokers and controllers."""
    if processes is None or len(processes.named("broker")) < 3:
        pytest.skip("several brokers and controllers: OTTLA_BROWSER_CLUSTER=3+3")
    yield processes
    for key in RATES:
        processes.ottla("config", "set", "--cluster", "--unset", key)


def fill_moved(nodes: Processes, topic: str, partitions: int) -> None:
    """Create a topic with some megabytes, all of whose replicas are on broker 1."""

    async def fill(admin: Admin) -> None:
        await admin.create_topic(topic, partition_count=partitions, replication_factor=1)
        await admin.alter_reassignments({TopicPartition(topic, i): [1] for i in range(partitions)})
        async with open_producer(nodes.bootstrap) as producer:
            for number in range(RECORD_COUNT):
                value = bytes(RECORD_BYTES)
                await producer.send(topic, value, partition=number % partitions)

    ask(nodes.bootstrap, fill)
    nodes.wait_for(
        lambda: not ask(nodes.bootstrap, lambda admin: admin.list_reassignments()) or None,
        "the first moves",
        PATIENCE_S,
    )


def test_a_move_is_shown_and_cancelled(open_tab: OpenTab, nodes: Processes) -> None:
    fill_moved(nodes, "moved", 1)

    async def move(admin: Admin) -> None:
        await admin.alter_broker_configs(None, dict.fromkeys(RATES, "1000"))
        await admin.alter_topic_configs("moved", dict.fromkeys(REPLICAS, "*"))
        await admin.alter_reassignments({MOVED: [2]})

    ask(nodes.bootstrap, move)
    tab = open_tab()
    tab.open("/moves?q=moved")
    assert "moved" in tab.text()
    tab.submit("/moves/cancel", {"topic": "moved", "partition": "0"})
    assert "its replicas stay" in tab.text()
    assert MOVED not in ask(nodes.bootstrap, lambda admin: admin.list_reassignments())
    (partition,) = ask(nodes.bootstrap, lambda admin: admin.describe_topic("moved")).partitions
    assert list(partition.replicas) == [1]


def test_a_balance_is_slowed_down_and_cancelled(open_tab: OpenTab, nodes: Processes) -> None:
    fill_moved(nodes, "heavy", 6)
    nodes.ottla("cluster", "balance", "--yes", "--no-wait", "--throttle", "2000")

    async def rate(admin: Admin) -> str | None:
        found = await admin.describe_configs(
            ConfigResource(ConfigKind.BROKER, ""), keys=(BALANCE_RATE_MAX,)
        )
        return found[BALANCE_RATE_MAX].value

    def plan() -> StoredPlan:
        return ask(nodes.bootstrap, read_stored_plan)

    assert plan().moves
    tab = open_tab()
    tab.open("/moves")
    assert "Balance in progress" in tab.text()
    tab.submit("/moves/throttle", {"rate": "3000"})
    assert ask(nodes.bootstrap, rate) == "3000"
    tab.submit("/moves/balance/cancel", {"confirm": "balance"})
    assert "The balance was cancelled." in tab.text()
    assert not plan().moves


def test_a_broker_is_cordoned_and_drained(open_tab: OpenTab, nodes: Processes) -> None:
    broker = nodes.named("broker")[-1].split()[1]
    path, node = f"/brokers/{broker}", NodeId(int(broker))

    def is_cordoned() -> bool:
        directories = ask(nodes.bootstrap, lambda admin: admin.describe_log_dirs(node))
        return any(one.is_cordoned for one in directories)

    def leads() -> bool:
        return int(broker) in nodes.leaders("orders").values()

    tab = open_tab()
    tab.open(f"{path}/changes")
    for action, expected in (("cordon", True), ("uncordon", False)):
        tab.submit(f"{path}/{action}", {})
        assert is_cordoned() is expected
    # The page asks for force if another broker was just killed, and follows too late to lead.
    force = {"force": "yes"} if tab.tab.locator("[name=force]").count() else {}
    tab.submit(f"{path}/drain", {"confirm": broker} | force)
    assert tab.path().startswith("/actions/")
    tab.tab.get_by_text(f"broker {broker} is drained").first.wait_for()
    assert not leads()
    tab.open("/actions")
    tab.follow(f"Drain broker {broker}")
    tab.open(f"{path}/changes")
    tab.submit(f"{path}/undrain", {})
    assert "may lead partitions again" in tab.text()


def test_a_voter_is_removed_and_added(open_tab: OpenTab, nodes: Processes) -> None:
    voters = {int(one.split()[1]) for one in nodes.named("controller")}
    node = max(voters - {int(nodes.active_controller().split()[1])})
    tab = open_tab()
    tab.open("/quorum")
    tab.follow("Change voters")
    quorum = ask(nodes.bootstrap, described_quorum)
    (voter,) = (one for one in quorum.voters if one.id == node)
    controller = f"{node}@{voter.address}:{voter.directory_id}"
    removal, addition = f"change=remove&node={node}", f"change=add&controller={controller}"
    for query, action, form, expected in (
        (removal, f"{node}/remove", {"confirm": str(node)}, voters - {node}),
        (addition, "add", {}, voters),
    ):
        tab.open(f"/quorum/voters?{query}")
        assert "Steps (dry run)" in tab.text()
        tab.submit(f"/quorum/voters/{action}", form)
        tab.tab.locator("main .badge", has_text="done").first.wait_for()
        found = ask(nodes.bootstrap, lambda admin: admin.describe_quorum())
        assert {int(one.node) for one in found.voters} == expected
