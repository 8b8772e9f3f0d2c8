"""Changes of a broker by pages: cordon, drain and removal, with preview, progress and
cancellation."""

from http import HTTPStatus

import trio

from ottla.client.admin import Admin, open_admin
from ottla.client.testing import open_test_cluster
from ottla.console.page_types import UserRole
from ottla.insight.facts.survey_driver import SurveyedBroker, brokers_of, partitions_of
from tests.console.console_fixture import Browser, open_browser

LOOK_AGAIN_S = 0.05
CHANGES = "/brokers/2/changes"


async def broker_2(admin: Admin) -> SurveyedBroker:
    (found,) = await brokers_of(admin, only=2)
    return found


async def leaders_of(admin: Admin) -> set[int]:
    return {one.leader_id for one in partitions_of(await admin.cluster.metadata())}


async def start(browser: Browser, where: str, form: dict[str, str]) -> str:
    """Send the form of a long action. Returns the address of the action's page."""
    response = await browser.post(where, form)
    assert response.status_code == HTTPStatus.SEE_OTHER, response.text[-2_000:]
    return str(response.headers["location"])


async def page_with(browser: Browser, where: str, text: str) -> str:
    """Load a page until it contains a text."""
    while text not in (html := await browser.get(where)):
        assert "failed</span>" not in html, html[-3_000:]
        await trio.sleep(LOOK_AGAIN_S)
    return html


async def test_a_broker_is_cordoned_drained_and_emptied() -> None:
    with trio.fail_after(120):
        async with (
            open_test_cluster(broker_count=2) as cluster,
            open_admin(cluster.bootstrap) as admin,
            open_browser(admin) as browser,
        ):
            await admin.create_topic("orders", partition_count=2, replication_factor=1)
            assert CHANGES in await browser.get("/brokers/2")

            html = await browser.act("/brokers/2/cordon")
            assert "End the cordon" in html
            assert (await broker_2(admin)).is_cordoned
            html = await browser.act("/brokers/2/uncordon")
            assert "gets new replicas again" in html
            assert not (await broker_2(admin)).is_cordoned

            # Each partition has one replica, so that a drain leaves partitions without a leader.
            assert "partitions are left without a leader" in html
            refused = await browser.post("/brokers/2/drain", {"confirm": "2"})
            assert refused.status_code == HTTPStatus.CONFLICT
            unconfirmed = await browser.post("/brokers/2/drain", {"force": "yes"})
            assert unconfirmed.status_code == HTTPStatus.BAD_REQUEST

            assert "is running; stop it first" in html
            running = await browser.post("/brokers/2/unregister", {"confirm": "2"})
            assert running.status_code == HTTPStatus.CONFLICT

            html = await browser.get(f"{CHANGES}?throttle=1000000")
            assert "Moves that empty the broker" in html
            form = {"confirm": "2", "throttle": "1000000"}
            where = await start(browser, "/brokers/2/remove", form)
            await page_with(browser, where, "stop it now (SIGTERM)")
            assert await leaders_of(admin) == {1}
            assert "is in progress" in await browser.get(CHANGES)
            again = await browser.post("/brokers/2/remove", form)
            assert again.status_code == HTTPStatus.CONFLICT
            await browser.act(f"{where}/cancel")
            html = await page_with(browser, where, "cancelled</span>")
            assert "Cancel this action" not in html
            assert "cancelled</span>" in await browser.get("/actions")
            assert "is in progress" not in await browser.get(CHANGES)
            assert [line["action"] for line in browser.audit.lines][-2:] == [
                "long-action-cancel",
                "long-action-end",
            ]

            # Now it leads nothing, so that nothing prevents the drain.
            where = await start(browser, "/brokers/2/drain", {"confirm": "2"})
            await page_with(browser, where, "broker 2 is drained")
            assert "End the drain" in await browser.get(CHANGES)
            await browser.act("/brokers/2/undrain")
            assert "Move its leaderships to others" in await browser.get(CHANGES)


async def test_operators_neither_remove_nor_unregister_brokers() -> None:
    async with open_browser(None, role=UserRole.OPERATOR) as browser:
        for name in ("remove", "unregister"):
            response = await browser.post(f"/brokers/2/{name}", {"confirm": "2"})
            assert response.status_code == HTTPStatus.FORBIDDEN
