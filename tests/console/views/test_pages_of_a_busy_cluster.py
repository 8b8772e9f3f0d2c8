"""Pages of a cluster at work: a member, an open transaction, a record in flight, a reset."""

import re
from collections.abc import Callable

import trio

from ottla.client import (
    ConfigKind,
    ConfigResource,
    ConsumerConfig,
    ProducerConfig,
    ShareConsumerConfig,
    open_admin,
    open_consumer,
    open_producer,
    open_share_consumer,
)
from ottla.client.testing import open_test_cluster
from tests.console.console_fixture import Browser, open_browser

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}
TIMEOUT_S = 120.0


def text_of(html: str) -> str:
    """Return the text of a page's content."""
    content = html.partition("<h1>")[2].partition("</main>")[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", content))


async def shown(browser: Browser, where: str, is_there: Callable[[str], bool]) -> str:
    """Reload a page until its text fulfils a condition, and return the text."""
    while not is_there(text := text_of(await browser.get(where))):
        await trio.sleep(0.1)
    return text


async def test_pages_show_clients_at_work_and_reset_their_group_afterwards() -> None:
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster(settings=SETTINGS) as cluster,
            open_admin(cluster.bootstrap) as admin,
            open_browser(admin) as browser,
        ):
            await admin.create_topic("orders", partition_count=1)
            group = ConfigResource(ConfigKind.GROUP, "pickers")
            await admin.alter_configs(group, {"share.auto.offset.reset": "earliest"})
            async with open_producer(cluster.bootstrap) as producer:
                await producer.send_many("orders", [b"1", b"2", b"3"])
            config = ConsumerConfig(group_id="billing", auto_offset_reset="earliest")
            async with open_consumer(cluster.bootstrap, config) as consumer:
                consumer.subscribe(["orders"])
                while not await consumer.poll():
                    pass
                await consumer.commit()
                await _while_consumed(browser)
                refused = await browser.post("/groups/billing/reset", {"plan": "orders:0=0"})
                assert refused.status_code == 409
                assert "stop them first" in refused.text
                await _share_group(cluster.bootstrap, browser)
                await _transaction(cluster.bootstrap, browser)
            await shown(browser, "/groups/billing", lambda text: "Members 0" in text)
            await browser.act("/groups/billing/reset", {"plan": "orders:0=1"})
            text = text_of(await browser.get("/groups/billing"))
            assert re.search(r"orders 0 1 [0-9]+ ", text), text


async def _while_consumed(browser: Browser) -> None:
    text = text_of(await browser.get("/groups/billing"))
    assert "Stable" in text
    assert "orders 0 3 3 0 0 ms" in text
    text = text_of(await browser.get("/groups/billing/members"))
    assert "orders-0" in text


async def _share_group(bootstrap: str, browser: Browser) -> None:
    config = ShareConsumerConfig(group_id="pickers", fetch_wait_ms_max=100)
    async with open_share_consumer(bootstrap, config) as consumer:
        consumer.subscribe(["orders"])
        while not (records := await consumer.poll()):
            pass
        assert len(records) == 3
        text = await shown(browser, "/queues/pickers", lambda text: " orders 0 0 3 3 " in text)
        assert "no member fetches it" not in text
        text = text_of(await browser.get("/queues/pickers/records/orders/0"))
        assert re.search(r" 0 2 acquired[a-z, ]* 1 ", text), text


async def _transaction(bootstrap: str, browser: Browser) -> None:
    config = ProducerConfig(transactional_id="bank")
    async with open_producer(bootstrap, config) as producer, producer.transaction():
        await (await producer.send("orders", b"4"))
        text = text_of(await browser.get("/transactions?state=Ongoing"))
        assert "bank ! Ongoing" in text
        text = text_of(await browser.get("/transactions/bank"))
        assert "orders 0" in text
        text = text_of(await browser.get("/transactions-of/orders"))
        assert re.search(r"orders-0 3 [0-9,]+ 0 0 \S+ bank ! open", text), text
        # Its coordinator knows the transaction: it is not the operator's to end.
        where = "/transactions-of/orders/0/3/abort"
        assert (await browser.post(where, {"confirm": "orders"})).status_code == 409
