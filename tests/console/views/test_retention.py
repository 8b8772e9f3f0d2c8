"""Topics that keep records too long are shown with the reason."""

from ottla.client.admin import open_admin
from ottla.client.producer import open_producer
from ottla.client.testing import open_test_cluster
from tests.console.console_fixture import NOW_MS, open_browser

AHEAD_MS = 3_600_000


async def test_topics_with_a_record_ahead_of_the_clock_are_listed() -> None:
    # Brokers refuse timestamps that are far ahead of their clock, unless they are configured so.
    settings = {"log.message.timestamp.after.max.ms": str(2**62)}
    async with (
        open_test_cluster(settings=settings) as cluster,
        open_admin(cluster.bootstrap) as admin,
        open_producer(cluster.bootstrap) as producer,
        open_browser(admin) as browser,
    ):
        for name, policy in (("late", "delete"), ("kept", "compact"), ("good", "delete")):
            await admin.create_topic(name, partition_count=1, configs={"cleanup.policy": policy})
            ahead_ms = 0 if name == "good" else AHEAD_MS
            delivery = await producer.send(
                name, b"v", key=b"k", partition=0, timestamp_ms=NOW_MS + ahead_ms
            )
            await delivery
        html = await browser.get("/retention")
        assert "late</code>" in html
        assert "set the producers" in html
        assert "kept</code>" not in html
        assert "good</code>" not in html
        await admin.delete_topic("late")
        assert "No record of 2 topics is ahead of the clock" in await browser.get("/retention")
