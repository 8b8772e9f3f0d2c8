"""Pages of a topic's records. A page shows records by offset, time or key, records that match a
filter, new records as they arrive, or a single record. The module also provides downloads, and a
form that writes a record.

If the console hides messages, keys, values and headers are not shown, and records cannot be
selected by them.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

import trio

from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.registry.framing import RecordPart
from ottla.console.form_values import number_in
from ottla.console.http_errors import PageError
from ottla.console.links import address
from ottla.console.page_types import (
    Action,
    Download,
    Live,
    Page,
    PageRequest,
    PageView,
)
from ottla.console.records.new_record import INPUTS, parse_record
from ottla.console.records.read_query import (
    DOWNLOAD_COUNT_MAX,
    LEVELS,
    ReadQuery,
    cursor_text,
    parse_query,
)
from ottla.console.records.record_reads_driver import FoundRecords, find_record, find_records
from ottla.console.records.record_rows import (
    MessageRow,
    download_lines,
    record_row,
    whole_record,
)
from ottla.console.records.record_tail_driver import tail_records
from ottla.console.records.schema_formats_driver import (
    FieldDecoder,
    SchemaFiles,
    format_choices,
    open_field_decoder,
    read_schema_files,
)
from ottla.model.errors import ConfigError
from ottla.model.limits import KIB

RECORDS_PATH = "/topics/{topic}/records"
RECORD_PATH = "/topics/{topic}/records/{partition}/{offset}"
WRITE_S = 30.0
LINES_TOGETHER = 100
LINE_BYTES_LONG = 64 * KIB
"""Size, in bytes, from which a line of a download counts as long. The event loop serves other pages
after each long line, and after each LINES_TOGETHER lines."""
NUMBER_DIGITS_MAX = 18
STARTS = (
    ("newest", "the newest records"),
    ("oldest", "the oldest records"),
    ("offset", "an offset"),
    ("time", "a time"),
)
HIDDEN_REASON = "messages are hidden, so records cannot be chosen by key, value or header"


async def messages(request: PageRequest) -> PageView:
    """Return the page that shows a topic's records, or a download of them."""
    files = await read_schema_files(request.config)
    is_download = request.query.get("download", "") == "json"
    try:
        query = _query_of(request, is_download=is_download)
    except ConfigError as error:
        return PageView(context=_context(request, files, None, (), str(error)), status=400)
    if request.query.get("live", ""):
        return PageView(context=_context(request, files, None, (), ""))
    async with open_field_decoder(request.config, files, _formats(query)) as decoder:
        found = await find_records(request.admin, request.path["topic"], query, decoder)
        await _prepare(decoder, found.records)
        if is_download:
            return await _download(request, found, decoder)
        rows = await _rows(request, found.records, decoder)
    return PageView(context=_context(request, files, found, rows, ""))


async def message(request: PageRequest) -> PageView:
    """Return the page that shows one record, or its key or value as a download."""
    topic, partition = request.path["topic"], _number(request.path["partition"])
    offset = _number(request.path["offset"])
    files = await read_schema_files(request.config)
    query = ReadQuery(
        start=parse_query({}, now_ms=request.now_ms).start,
        key_format=request.query.get("kf", "") or "auto",
        value_format=request.query.get("vf", "") or "auto",
    )
    record = await find_record(request.admin, topic, partition, offset)
    raw = request.query.get("raw", "")
    if raw:
        return _raw(request, record, raw)
    async with open_field_decoder(request.config, files, _formats(query)) as decoder:
        await _prepare(decoder, (record,))
        whole = whole_record(record, decoder, is_hidden=request.hides_messages)
    return PageView(
        context={
            "record": whole,
            "formats": format_choices(request.config, files),
            "file_problems": files.problems,
        }
    )


async def tail(request: PageRequest) -> AsyncGenerator[PageView, None]:
    """Yield the content of the page's live part, which is updated while the page is open: the
    newest records of a topic as they arrive."""
    files = await read_schema_files(request.config)
    query = _query_of(request, is_download=False)
    async with open_field_decoder(request.config, files, _formats(query)) as decoder:
        topic = request.path["topic"]
        async with aclosing(tail_records(request.admin, topic, query, decoder)) as tailed:
            async for found in tailed:
                await _prepare(decoder, found.records)
                yield PageView(
                    context={
                        "records": await _rows(request, found.records, decoder),
                        "skipped_count": found.skipped_count,
                        "matched_count": found.matched_count,
                    }
                )


async def produce(request: PageRequest) -> PageView:
    """Write the record in a form to a topic. Returns a redirect to the record's page."""
    topic = request.path["topic"]
    record = parse_record(request.form)
    with trio.fail_after(WRITE_S):
        async with request.open_producer() as producer:
            pending = await producer.send(
                topic,
                record.value,
                key=record.key,
                partition=record.partition,
                headers=record.headers,
            )
            delivery = await pending
    values = {
        "topic": topic,
        "partition": str(delivery.partition),
        "offset": str(delivery.offset),
    }
    return PageView(
        context={},
        location=address(RECORD_PATH, values),
        notice=f"The record was written to partition {delivery.partition} at offset "
        f"{delivery.offset}.",
    )


def _query_of(request: PageRequest, *, is_download: bool) -> ReadQuery:
    given = dict(request.query)
    if is_download:
        given.setdefault("count", str(DOWNLOAD_COUNT_MAX))
        query = parse_query(given, now_ms=request.now_ms, count_max=DOWNLOAD_COUNT_MAX)
    else:
        query = parse_query(given, now_ms=request.now_ms)
    if request.hides_messages and (query.reads_content or is_download):
        raise PageError(HTTPStatus.FORBIDDEN, HIDDEN_REASON)
    return query


def _context(
    request: PageRequest,
    files: SchemaFiles,
    found: FoundRecords | None,
    rows: tuple[MessageRow, ...],
    problem: str,
) -> dict[str, Any]:
    return {
        "records": rows,
        "found": found,
        "cursor": cursor_text(found.cursor) if found is not None and found.cursor else "",
        "problem": problem,
        "is_live": bool(request.query.get("live", "")) and not problem,
        "formats": format_choices(request.config, files),
        "file_problems": files.problems,
        "starts": STARTS,
        "levels": LEVELS,
        "inputs": list(INPUTS.items()),
        "skipped_count": 0,
        "matched_count": 0,
    }


def _formats(query: ReadQuery) -> dict[RecordPart, str]:
    return {"key": query.key_format, "value": query.value_format}


async def _prepare(decoder: FieldDecoder, records: tuple[ConsumerRecord, ...]) -> None:
    await decoder.prepare((one.key, one.value, one.headers) for one in records)


async def _rows(
    request: PageRequest, records: tuple[ConsumerRecord, ...], decoder: FieldDecoder
) -> tuple[MessageRow, ...]:
    rows = []
    for one in records:
        # A record of 1 MiB takes some milliseconds.
        await trio.lowlevel.checkpoint()
        rows.append(record_row(one, decoder, is_hidden=request.hides_messages))
    return tuple(rows)


async def _download(request: PageRequest, found: FoundRecords, decoder: FieldDecoder) -> PageView:
    topic, content = request.path["topic"], bytearray()
    for number, line in enumerate(download_lines(topic, found.records, decoder)):
        content += line
        if number % LINES_TOGETHER == 0 or len(line) > LINE_BYTES_LONG:
            await trio.lowlevel.checkpoint()
    return PageView(
        context={},
        download=Download(
            name=f"{topic}.ndjson",
            content=bytes(content),
            content_type="application/x-ndjson",
        ),
    )


def _raw(request: PageRequest, record: ConsumerRecord, part: str) -> PageView:
    if request.hides_messages:
        raise PageError(HTTPStatus.FORBIDDEN, "messages are hidden")
    data = {"key": record.key, "value": record.value}.get(part)
    if data is None:
        raise PageError(HTTPStatus.NOT_FOUND, f"the record has no {part[:20]}")
    name = f"{record.topic}-{record.partition}-{record.offset}.{part}"
    return PageView(context={}, download=Download(name=name, content=data))


def _number(text: str) -> int:
    found = number_in(text, digits_max=NUMBER_DIGITS_MAX)
    if found is None:
        raise PageError(HTTPStatus.NOT_FOUND, f"{text[:50]!r} is not a number")
    return found


PAGES = (
    Page(
        name="messages",
        path=RECORDS_PATH,
        title="Records",
        command="ottla consume {topic} --exit-at-end --json",
        view=messages,
        lives=(Live(name="tail", path="/live/topics/{topic}/records", stream=tail),),
        actions=(
            Action(
                name="produce",
                path="/topics/{topic}/records/produce",
                command="ottla produce {topic}",
                run=produce,
            ),
        ),
    ),
    Page(
        name="message",
        path=RECORD_PATH,
        title="Record",
        command="ottla consume {topic} --partition {partition} --offset {offset} --count 1 --json",
        view=message,
    ),
)
