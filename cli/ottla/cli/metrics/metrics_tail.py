"""`ottla metrics tail`: prints pushes of client metrics as they arrive, from all brokers."""

import argparse
import re
from datetime import UTC, datetime
from typing import Any

import trio

from ottla.cli.common import counted
from ottla.cli.metrics.metrics_clients import BROKER_TIMEOUT_S, brokers_of
from ottla.cli.options import Declared, option
from ottla.cli.terminal import note, say_block, say_json
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_telemetry import (
    FROM_NOW,
    FROM_OLDEST,
    PushedMetrics,
    TailedMetrics,
)
from ottla.model.errors import ConfigError, CorruptDataError, OttlaError
from ottla.model.ids import NodeId, uuid_text
from ottla.telemetry.clients.otlp import HistogramValue, Point, decode, points_of

POLL_S = 0.25
"""Seconds that the command waits after a poll without new pushes of client metrics. Without this
pause it would poll continuously, because brokers answer at once."""
LOOK_AROUND_S = 10.0
"""Interval, in seconds, at which the command refreshes its list of the brokers to poll."""
NANOSECONDS = 1_000_000


OPTIONS: tuple[Declared, ...] = (
    option("--client ID", "client id or client instance id (default: all)"),
    option("--broker ID", "node.id of a broker (default: all)", type=int),
    option("--metric REGEX", "regular expression found in the metric's name (default: all)"),
    option("--recent", "print the last pushes that brokers keep first"),
    option("-c --count N", "number of pushes to print (default: no limit)", type=int),
)


async def run(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla metrics tail`: print pushes of client metrics until interrupted. Returns the exit
    code."""
    tail = Tail(admin, arguments)
    while not tail.is_done:
        await tail.poll_once()
    return 0


class Tail:
    """Reader of client metrics as they arrive: the read position at each broker, and the number of
    pushes shown."""

    def __init__(self, admin: Admin, arguments: argparse.Namespace) -> None:
        self._admin = admin
        self._client: str | None = arguments.client
        self._broker: int | None = arguments.broker
        self._left: int | None = arguments.count
        self._is_json = arguments.format == "json"
        try:
            self._pattern = re.compile(arguments.metric or "")
        except re.error as error:
            raise ConfigError(
                "--metric", f"{arguments.metric!r} is no regular expression: {error}"
            ) from None
        self._begin = FROM_OLDEST if arguments.recent else FROM_NOW
        self._cursors: dict[NodeId, int] = {}
        self._silent: set[NodeId] = set()
        """Brokers that do not respond to polls for client metrics, and for which the command has
        already printed a note."""
        self._look_around_at = 0.0

    @property
    def is_done(self) -> bool:
        """True if the requested number of pushes of client metrics has been shown."""
        return self._left is not None and self._left <= 0

    async def poll_once(self) -> None:
        """Poll every broker once for client metrics, and print the new pushes ordered by time. If
        there are no new pushes, wait for POLL_S seconds."""
        await self._look_around()
        tails: list[TailedMetrics] = []

        async def ask(node: NodeId) -> None:
            if (found := await self._ask(node)) is not None:
                tails.append(found)

        async with trio.open_nursery() as nursery:
            for node in self._cursors:
                nursery.start_soon(ask, node)
        missed = sum(found.missed for found in tails)
        if missed:
            note(f"ottla metrics: {counted(missed, 'older push')} fell out before they were read")
        pushes = [push for found in tails for push in found.pushes]
        for push in sorted(pushes, key=lambda one: one.received_ms):
            if not self.is_done:
                self._show(push)
        if not pushes:
            await trio.sleep(POLL_S)

    async def _look_around(self) -> None:
        """Refresh the list of brokers to poll for client metrics: add new brokers, and remove
        brokers that no longer exist."""
        if trio.current_time() < self._look_around_at:
            return
        try:
            nodes = await brokers_of(self._admin, self._broker)
        except OttlaError:
            if not self._cursors:
                raise
            return
        self._cursors = {node: self._cursors.get(node, self._begin) for node in nodes}
        self._look_around_at = trio.current_time() + LOOK_AROUND_S
        # If a broker is found later, all its pushes are newer than the start of this command.
        self._begin = FROM_OLDEST

    async def _ask(self, node: NodeId) -> TailedMetrics | None:
        try:
            with trio.fail_after(BROKER_TIMEOUT_S):
                found = await self._admin.tail_client_metrics(
                    node, self._cursors[node], client=self._client
                )
        except (OttlaError, trio.TooSlowError) as error:
            if node not in self._silent:
                slow = f"did not answer in {BROKER_TIMEOUT_S:g} s"
                why = str(error) if isinstance(error, OttlaError) else slow
                note(f"ottla metrics: broker {node}: {why}")
            self._silent.add(node)
            return None
        self._silent.discard(node)
        self._cursors[node] = found.cursor
        return found

    def _show(self, push: PushedMetrics) -> None:
        try:
            points = [
                point for point in points_of(decode(push.otlp)) if self._pattern.search(point.name)
            ]
        except CorruptDataError as error:
            note(f"ottla metrics: broker {push.node}: {error}")
            return
        if not points:
            return
        if self._is_json:
            say_json(as_json(push, points), is_flushed=True)
        else:
            say_block("\n".join(line_of(push, point) for point in points), is_flushed=True)
        if self._left is not None:
            self._left -= 1


def line_of(push: PushedMetrics, point: Point) -> str:
    """Return one value of a client metric as a line of text: time, client, metric, value."""
    moment = datetime.fromtimestamp(push.received_ms / 1_000, UTC)
    client = push.client_id or uuid_text(push.client_instance_id)
    attributes = ",".join(f"{name}={value}" for name, value in point.attributes)
    name = f"{point.name}{{{attributes}}}" if attributes else point.name
    return f"{moment:%H:%M:%S}.{push.received_ms % 1_000:03}  {client}  {name}  {_value(point)}"


def as_json(push: PushedMetrics, points: list[Point]) -> dict[str, Any]:
    """Return a push of client metrics with its values, as the JSON object that the command
    prints."""
    return {
        "received_ms": push.received_ms,
        "broker": push.node,
        "client_instance_id": uuid_text(push.client_instance_id),
        "client_id": push.client_id,
        "software_name": push.software_name,
        "software_version": push.software_version,
        "source_address": push.source_address,
        "metrics": [
            {
                "name": point.name,
                "unit": point.unit,
                "kind": point.kind.name.lower(),
                "is_delta": point.is_delta,
                "attributes": dict(point.attributes),
                "start_ms": point.start_ns // NANOSECONDS,
                "end_ms": point.end_ns // NANOSECONDS,
                "value": _plain(point.value),
            }
            for point in points
        ],
    }


def _value(point: Point) -> str:
    value = point.value
    sign = "+" if point.is_delta else ""
    unit = f" {point.unit}" if point.unit not in ("", "1") else ""
    if isinstance(value, HistogramValue):
        mean = value.sum / value.count if value.count else 0.0
        return f"{sign}{value.count} of {mean:g}{unit} each"
    return f"{sign}{value:g}{unit}" if isinstance(value, float) else f"{sign}{value}{unit}"


def _plain(value: float | HistogramValue) -> Any:
    if not isinstance(value, HistogramValue):
        return value
    return {
        "count": value.count,
        "sum": value.sum,
        "bounds": list(value.bounds),
        "counts": list(value.counts),
    }
