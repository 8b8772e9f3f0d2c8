"""Static files of the console: checksums of the vendored ones, and the size of the first page."""

import gzip
import hashlib
import re

from ottla.client import open_admin
from ottla.client.testing import open_test_cluster
from ottla.console.static_files import FOLDER, read_static_files
from tests.console.console_fixture import FakeAdmin, open_browser

FIRST_PAGE_BYTES_MAX = 100_000


def test_vendored_files_have_their_checksums_and_licenses() -> None:
    rows = [line.split() for line in (FOLDER / "SHA256SUMS").read_text().splitlines()]
    assert {name for _, name in rows} == {
        path.name for path in FOLDER.iterdir() if path.name.startswith(("htmx.", "uPlot."))
    }
    for digest, name in rows:
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name


def test_scripts_and_templates_have_nothing_that_the_policy_forbids() -> None:
    own = [*FOLDER.glob("*.js"), *FOLDER.parent.glob("templates/**/*.html")]
    for path in own:
        text = path.read_text()
        if path.suffix == ".html":
            assert not re.search(r"<style|\sstyle=|\son\w+=|hx-on|javascript:|\|\s*safe", text), (
                path
            )
            assert all("src=" in one for one in re.findall(r"<script[^>]*>", text)), path
        assert "http://" not in text.replace("http://www.w3.org", ""), path


async def test_the_first_page_and_its_files_are_small() -> None:
    async with (
        open_test_cluster() as cluster,
        open_admin(cluster.bootstrap) as admin,
        open_browser(admin) as browser,
    ):
        html = await browser.get("/")
    names = re.findall(r'(?:src|href)="/static/([\w.]+)', html)
    assert len(names) == 7
    files = read_static_files()
    sent = sum(len(files[name].compressed) for name in names) + len(gzip.compress(html.encode()))
    assert sent <= FIRST_PAGE_BYTES_MAX


async def test_a_file_is_sent_compressed_and_kept() -> None:
    async with open_browser(FakeAdmin()) as browser:
        found = await browser.http.get("/static/console.css")
        assert found.headers["content-encoding"] == "gzip"
        assert "immutable" in found.headers["cache-control"]
        plain = await browser.http.get("/static/console.css", headers={"accept-encoding": "br"})
        assert plain.text == found.text
        tag = {"if-none-match": found.headers["etag"]}
        assert (await browser.http.get("/static/console.css", headers=tag)).status_code == 304
