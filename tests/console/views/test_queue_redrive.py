"""Dead letters of a share group are counted and moved back by a page."""

from http import HTTPStatus

import pytest
import trio

from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.client.producer import Producer, open_producer
from ottla.client.testing import open_test_cluster
from ottla.console.views.groups.queue_redrive import choice_of
from ottla.insight.changes.redrive_driver import RedriveChoice
from ottla.insight.changes.redrive_letters import LetterCause
from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition
from ottla.model.settings.resources import ConfigKind
from ottla.wire.offset_timestamps import LATEST
from tests.console.console_fixture import NOW_MS, Browser, open_browser

LETTERS = "dlq.orders"
REJECTED = b"Offset rejected by client."
EXHAUSTED = b"Offset delivery count exceeded the threshold."
PAGE = "/queues/g/redrive"


async def write_letter(producer: Producer, offset: int, reason: bytes) -> None:
    """Write a dead letter with a copy of its record, as a broker does."""
    fields = {
        "topic": b"orders",
        "partition": b"0",
        "offset": b"%d" % offset,
        "group": b"g",
        "message": reason,
    }
    headers = [(f"__dlq.errors.{name}", text) for name, text in fields.items()]
    await (await producer.send(LETTERS, b"%d" % offset, headers=headers, partition=0))


async def end_of_orders(admin: Admin) -> int:
    at = TopicPartition("orders", 0)
    return int(
        (await admin.list_offsets({at: LATEST}, isolation_level="read_committed"))[at].offset
    )


async def moved(browser: Browser, form: dict[str, str]) -> str:
    """Move dead letters by the page's form. Returns the HTML of the long action's page."""
    response = await browser.post(PAGE, form)
    assert response.status_code == HTTPStatus.SEE_OTHER, response.text[-2_000:]
    where = response.headers["location"]
    while "running</span>" in (html := await browser.get(where)):
        await trio.sleep(0.05)
    return html


async def test_letters_are_counted_and_moved_back_once() -> None:
    settings = {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with trio.fail_after(120):
        async with (
            open_test_cluster(settings=settings) as cluster,
            open_admin(cluster.bootstrap) as admin,
            open_producer(cluster.bootstrap) as producer,
            open_browser(admin, bootstrap=cluster.bootstrap) as browser,
        ):
            await admin.create_topic("orders", partition_count=1)
            await admin.create_topic(
                LETTERS,
                partition_count=1,
                configs={"errors.deadletterqueue.group.enable": "true"},
            )
            changes = {"errors.deadletterqueue.topic.name": LETTERS}
            await admin.alter_configs(ConfigResource(ConfigKind.GROUP, "g"), changes)
            for offset, reason in ((0, REJECTED), (1, EXHAUSTED), (2, REJECTED)):
                await write_letter(producer, offset, reason)

            html = await browser.get(f"{PAGE}?show=yes&cause=rejected")
            assert "excluded by a filter" in html
            assert "ottla share redrive g --cause rejected --dry-run" in html
            assert await end_of_orders(admin) == 0

            html = await moved(browser, {"cause": "rejected"})
            assert "2 dead letters of dlq.orders moved" in html
            html = await moved(browser, {})
            assert "1 dead letter of dlq.orders moved" in html
            assert "No dead letter has to be moved." in await browser.get(f"{PAGE}?show=yes")
            assert "has no errors.deadletterqueue.topic.name" in await browser.get(
                "/queues/other/redrive?show=yes"
            )


def test_the_fields_of_the_form_choose_letters() -> None:
    fields = {
        "letters": " dlq ",
        "topic": "orders",
        "cause": "exhausted",
        "since": "1h",
        "until": str(NOW_MS),
        "limit": "5",
        "redrives": "2",
    }
    assert choice_of("g", fields, NOW_MS) == RedriveChoice(
        group="g",
        dead_letter_topic="dlq",
        cause=LetterCause.EXHAUSTED,
        places={"orders": None},
        since_ms=NOW_MS - 3_600_000,
        until_ms=NOW_MS,
        limit=5,
        redrives_max=2,
    )
    assert choice_of("g", {}, NOW_MS) == RedriveChoice(group="g")


@pytest.mark.parametrize(
    "fields",
    [{"cause": "other"}, {"limit": "x"}, {"limit": "-1"}, {"redrives": "1e3"}, {"since": "soon"}],
)
def test_an_invalid_field_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        choice_of("g", fields, NOW_MS)
