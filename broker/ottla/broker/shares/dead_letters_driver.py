"""Writes dead letters to the dead letter topics of share groups (KIP-1191): one task and one
connection for each broker that leads partitions of such topics.

Letters for this broker itself need no connection. While a request is in flight, the letters for the
same broker accumulate, and are sent with the next request. Each letter gets exactly one outcome.
The share partition keeps a letter that is not acknowledged, and sends it again after a back-off. An
unreachable broker delays only its own letters.

If the batch of a record is corrupt, its letter has no key and value, as in Kafka. The headers of
the letter identify the record, which stays in the log. If the log no longer has the record, no
letter is sent.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple
from uuid import UUID

import trio

from ottla.broker.cluster.peer_connection_driver import PeerConnection
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.shares.dead_letter_topic import (
    DeadLetterTopics,
    LetterRoute,
    LetterSource,
    letter_of,
    new_topic,
)
from ottla.broker.shares.dead_letters import BACKOFF_MS_MAX, DeadLetter
from ottla.broker.shares.led_share import LedShare, Stage
from ottla.broker.shares.letter_batches import (
    LetterBatch,
    outcomes_of,
    records_in,
    request_of,
)
from ottla.client.network.login import starter_of
from ottla.model.errors import CorruptDataError, ErrorCode, OttlaError, RefusedError
from ottla.model.ids import NO_NODE, NodeId, Offset
from ottla.model.limits import MIB
from ottla.model.seams import Clock
from ottla.model.settings.broker import BrokerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.admin.forwarding import ForwardingPort, forward_own
from ottla.node.network.loopback_driver import Loopback
from ottla.node.part_registry import PartRegistry
from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.kafka_names import prometheus_name
from ottla.wire.messages.create_topics_request import CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.produce_response import ProduceResponse
from ottla.wire.records import Record

logger = logging.getLogger("ottla.broker.shares")

LETTERS_PER_REQUEST = 500
"""Maximum number of dead letters in flight to one broker. With a larger value, their encoding
blocks the event loop longer. A smaller value needs more requests."""

BYTES_PER_REQUEST = MIB
"""Size in bytes of a request from which no further dead letter is added to it. A larger letter is
sent in a separate request."""

READ_BYTES = 256 * 1024
"""Bytes of the log that are read at once to copy records into dead letters. With a larger value,
their decoding blocks the event loop longer. A smaller value reads more often if many records of a
range have letters."""

IDLE_S = 60.0
"""Seconds after which a connection for dead letters is closed if no letter was sent over it."""

REQUEST_MARGIN_MS = 5_000
"""Milliseconds that a request with dead letters may take in addition to the time for which the
leader waits for replicas."""

CREATE_TOPICS_VERSION = 7

PATIENT = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Error codes of dead letters that a failover or a new topic causes. Such errors are logged only if
they persist."""

ADVICE = {
    ErrorCode.INVALID_RECORD: "its leader refuses records such as those without a key; "
    "set cleanup.policy=delete on it",
    ErrorCode.INVALID_TIMESTAMP: "its leader refuses their timestamps; "
    "raise message.timestamp.before.max.ms and message.timestamp.after.max.ms of it",
    ErrorCode.MESSAGE_TOO_LARGE: "one of them is too large; raise max.message.bytes of it",
    ErrorCode.NOT_ENOUGH_REPLICAS: "it has too few in-sync replicas; start their brokers",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "it has too few in-sync replicas; "
    "start their brokers",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the principal of the brokers may not write to it; "
    "add it to super.users, or allow it WRITE",
}
"""Reasons for which the leader of a dead letter topic refuses letters, by error code. Each reason
has advice for the operator."""

FAILURES_TOLERATED = 6
"""Number of consecutive failures of a dead letter after which a temporary error is logged. This
number of failures takes about six seconds."""

FAILURE_KINDS_MAX = 1_000
"""Maximum number of stored kinds of dead letter failures. A failure is stored so that its kind is
logged only once. Further kinds are not logged."""

LOG_PAUSE_MS = 600_000
"""Time in milliseconds after which a persistent failure to write dead letters is logged again."""

PROBLEM_MS = 2 * BACKOFF_MS_MAX
"""Time in milliseconds for which a failure to write dead letters is reported as a problem after its
last occurrence. Each waiting letter is sent again within this time."""


class LetterJob:
    """Dead letters of one share partition that must be sent to one broker, ordered by offset."""

    __slots__ = ("led", "letters")

    def __init__(self, led: LedShare, letters: Iterable[DeadLetter]) -> None:
        self.led = led
        self.letters = deque(letters)


class LetterFailure(NamedTuple):
    """Kind of failure to write dead letters. Each kind is logged at most once in LOG_PAUSE_MS."""

    topic: str
    group_id: str
    reason: str


class LetterFigures:
    """Counters of the dead letters of each share group since the start of this broker."""

    def __init__(self) -> None:
        self.written: Counter[str] = Counter()
        """Number of dead letters that the leaders acknowledged, by share group."""
        self.requests: Counter[str] = Counter()
        """Number of Produce requests that contained dead letters, by share group."""
        self.failed_requests: Counter[str] = Counter()
        """Number of Produce requests in which at least one dead letter was not acknowledged, by
        share group."""
        self.lost_count = 0
        """Number of records that were deleted from the log before their dead letter was written."""
        self.damaged_count = 0
        """Number of dead letters without key and value, because the batch of the record was
        damaged."""

    def families(self) -> Iterator[Family]:
        """Yield the metric families of dead letters, with Kafka's names."""
        bean = "kafka.server:type=ShareGroupMetrics,name=DeadLetterQueue"
        for name, text, counts in (
            ("RecordCount", "Dead letters that were written.", self.written),
            ("TotalProduceRequestsPerSec", "Requests with dead letters.", self.requests),
            (
                "FailedProduceRequestsPerSec",
                "Requests in which dead letters were not acknowledged.",
                self.failed_requests,
            ),
        ):
            yield Family(
                prometheus_name(bean + name),
                MetricKind.COUNTER,
                text,
                ("group",),
                [((group_id,), count) for group_id, count in sorted(counts.items())],
            )


class DeadLetterSender:
    """Sender of all dead letters of this broker; implements `LetterSender`."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        table: PartitionTable,
        clock: Clock,
        controller: ForwardingPort,
        errors: UnexpectedErrors,
        own: Loopback,
    ) -> None:
        """Create a sender without dead letters. `own` serves requests that this broker sends to
        itself."""
        self.config = config
        self.table = table
        self.clock = clock
        self.errors = errors
        self.own = own
        self.topics = DeadLetterTopics(config, lambda: table.image)
        self.figures = LetterFigures()
        self._controller = controller
        self._inbox: deque[LetterJob] = deque()
        self._has_letters = trio.Event()
        self._channels: dict[NodeId, LetterChannel] = {}
        self._creating: set[str] = set()
        self._failed_ms: dict[LetterFailure, int] = {}
        """Monotonic time in milliseconds of the last failure to write dead letters, by kind of
        failure, oldest first."""
        self._logged_ms: dict[LetterFailure, int] = {}
        """Monotonic time in milliseconds of the last log line about each kind of failure to write
        dead letters."""
        self._nursery: trio.Nursery | None = None
        self._start_soon: Callable[..., None]

    @property
    def is_enabled(self) -> bool:
        """True if the cluster supports dead letters, which requires share.version 2."""
        return self.topics.is_enabled

    def send(self, led: LedShare, letters: Sequence[DeadLetter]) -> None:
        """Write dead letters to their topics. Each letter and its result are passed to
        `LedShare.on_letters` when the result is known."""
        self._inbox.append(LetterJob(led, letters))
        self._has_letters.set()

    # ---- tasks

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that sends dead letters, its metrics and its problem
        reports."""
        parts.task("dead letters", self.run)
        parts.families(self.figures.families)
        parts.figures(self.metrics)
        parts.problems(self.problems)

    async def run(self) -> None:
        """Send dead letters to the leaders of their topics until cancelled."""
        async with trio.open_nursery() as nursery:
            self._start_soon = starter_of(nursery)
            self._nursery = nursery
            try:
                for channel in list(self._channels.values()):
                    channel.start()
                while True:
                    await self._has_letters.wait()
                    self._has_letters = trio.Event()
                    while self._inbox:
                        self._direct(self._inbox.popleft())
                        await trio.lowlevel.checkpoint()
            finally:
                # Before the nursery closes, so that no channel starts a task in it.
                self._nursery = None

    def start_soon(self, work: Callable[[], object]) -> bool:
        """Start a task that sends dead letters. Returns False if the background task of this sender
        is not running."""
        if self._nursery is None:
            return False
        self._start_soon(work)
        return True

    def _direct(self, job: LetterJob) -> None:
        """Queue dead letters for the leader of the partition to which they are written."""
        try:
            route = self.route_of(job.led)
        except RefusedError as refusal:
            self.fail(job.led, job.letters, refusal)
            return
        except Exception as error:
            self.errors.note("dead letters", job.led.key, error)
            self.fail(job.led, job.letters, RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        channel = self._channels.get(route.leader)
        if channel is None:
            channel = self._channels[route.leader] = LetterChannel(self, route.leader)
        channel.add(job)

    def route_of(self, led: LedShare) -> LetterRoute:
        """Return the partition to which the dead letters of a share partition are written.

        Raises RefusedError if the dead letter topic of the group may not receive the letters, or if
        the partition has no leader. If the topic is missing and may be created, its creation is
        requested.
        """
        name, source = led.settings.dead_letter_topic, led.partition.topic
        reason = self.topics.refusal(name, source)
        if reason is not None:
            raise RefusedError(ErrorCode.INVALID_CONFIG, reason)
        route = self.topics.route(name, led.key.partition)
        if route is None:
            if name not in self._creating and self.start_soon(partial(self._create, name)):
                self._creating.add(name)
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is being created")
        if route.leader == NO_NODE:
            raise RefusedError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"{name}-{route.partition} has no leader; start the brokers of its replicas",
            )
        return route

    async def _create(self, name: str) -> None:
        """Request the creation of a dead letter topic from the controller."""
        timeout_ms = self.config.request_timeout_ms
        try:
            response = await forward_own(
                CreateTopicsResponse,
                self._controller,
                CreateTopicsRequest(topics=[new_topic(name)], timeout_ms=timeout_ms),
                client_id=f"broker-{self.config.node_id}-dead-letters",
                version=CREATE_TOPICS_VERSION,
                timeout_ms=timeout_ms,
            )
            for topic in response.topics:
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self._note(
                        LetterFailure(name, "", f"it cannot be created: {topic.error_message}")
                    )
        except OttlaError:
            pass  # No controller is reachable. The letters are sent again, and request the topic.
        except Exception as error:
            self.errors.note("dead letters", name, error)
        finally:
            self._creating.discard(name)

    # ---- outcomes

    def settle(self, led: LedShare, letters: Sequence[DeadLetter], *, is_written: bool) -> None:
        """Report to a share partition whether its dead letters were written."""
        if not letters:
            return
        try:
            led.on_letters(letters, is_written=is_written)
        except Exception as error:
            self.errors.note("share partition", led.key, error)
            led.drop(ErrorCode.UNKNOWN_SERVER_ERROR)

    def fail(self, led: LedShare, letters: Iterable[DeadLetter], refusal: RefusedError) -> None:
        """Report to a share partition that its dead letters could not be written. The partition
        sends them again later. A persistent failure is logged once."""
        failed = list(letters)
        if not failed or led.stage is Stage.DROPPED:
            return
        failure_count = max(letter.failure_count for letter in failed)
        if refusal.code not in PATIENT or failure_count >= FAILURES_TOLERATED:
            name = led.settings.dead_letter_topic
            self._note(LetterFailure(name, led.key.group_id, str(refusal)))
        self.settle(led, failed, is_written=False)

    def _note(self, kind: LetterFailure) -> None:
        """Record a failure to write dead letters. Logs the failure if no failure of this kind was
        logged recently."""
        now_ms = self.clock.monotonic_ms()
        if kind not in self._failed_ms and len(self._failed_ms) >= FAILURE_KINDS_MAX:
            oldest = next(iter(self._failed_ms))
            if self._failed_ms[oldest] > now_ms - LOG_PAUSE_MS:
                return
            del self._failed_ms[oldest], self._logged_ms[oldest]
        self._failed_ms.pop(kind, None)
        self._failed_ms[kind] = now_ms
        logged_ms = self._logged_ms.get(kind)
        if logged_ms is None or logged_ms <= now_ms - LOG_PAUSE_MS:
            self._logged_ms[kind] = now_ms
            logger.warning("%s", _sentence_of(kind))

    # ---- reports

    def metrics(self) -> dict[str, float]:
        """Return the number of dead letters without an outcome, and other counts about them, by
        metric name."""
        waiting = sum(len(job.letters) for job in self._inbox)
        waiting += sum(channel.letter_count for channel in self._channels.values())
        return {
            "share.dead.letters.waiting": waiting,
            "share.dead.letters.damaged": self.figures.damaged_count,
            "share.dead.letters.lost": self.figures.lost_count,
        }

    def problems(self) -> Iterator[str]:
        """Yield a problem description for each lasting failure to write dead letters."""
        since_ms = self.clock.monotonic_ms() - PROBLEM_MS
        for kind, failed_ms in sorted(self._failed_ms.items()):
            if failed_ms >= since_ms:
                yield _sentence_of(kind)


def _sentence_of(kind: LetterFailure) -> str:
    if not kind.group_id:
        return f"dead letters are not written to {kind.topic}: {kind.reason}"
    return (
        f"dead letters of share group {kind.group_id!r} are not written to {kind.topic!r}, and "
        f"their records wait: {kind.reason}"
    )


class LetterChannel:
    """Dead letters that wait to be sent to one broker, and the task that sends them."""

    def __init__(self, sender: DeadLetterSender, node_id: NodeId) -> None:
        self._sender = sender
        self._node_id = node_id
        self._jobs: deque[LetterJob] = deque()
        self._has_jobs = trio.Event()
        self._in_flight_count = 0
        self._is_running = False

    @property
    def letter_count(self) -> int:
        """Number of dead letters sent or queued for this broker whose outcome is not known yet."""
        return self._in_flight_count + sum(len(job.letters) for job in self._jobs)

    def add(self, job: LetterJob) -> None:
        """Queue dead letters to be sent to the broker of this channel."""
        self._jobs.append(job)
        self._has_jobs.set()
        self.start()

    def start(self) -> None:
        """Start the task that sends dead letters, if letters are queued and the task is not
        running."""
        if self._jobs and not self._is_running:
            self._is_running = self._sender.start_soon(self._run)

    async def _run(self) -> None:
        """Send dead letters to the broker until none has been queued for IDLE_S."""
        sender = self._sender
        config = sender.config
        link = PeerConnection(
            self._node_id,
            config,
            lambda: sender.table.image,
            purpose="dead-letters",
            own=sender.own if self._node_id == config.node_id else None,
        )
        try:
            # Letters that were added in the same event-loop iteration are sent together.
            await trio.lowlevel.checkpoint()
            while await self._wait():
                await self._send_some(link)
        finally:
            self._is_running = False
            await link.close()
            # Letters may have arrived while the connection was being closed.
            self.start()

    async def _wait(self) -> bool:
        """Wait until dead letters are queued for the broker. Returns False if no letter is queued
        for IDLE_S."""
        with trio.move_on_after(IDLE_S):
            while not self._jobs:
                self._has_jobs = trio.Event()
                await self._has_jobs.wait()
        return bool(self._jobs)

    async def _send_some(self, link: PeerConnection) -> None:
        """Send one Produce request with dead letters to the broker. All letters in the request get
        an outcome, even if this task is cancelled."""
        parcel = Parcel(self._sender, self._node_id)
        refusal = RefusedError(
            ErrorCode.NETWORK_EXCEPTION, f"broker {self._node_id} did not answer"
        )
        try:
            await parcel.fill(self._jobs)
            self._in_flight_count = parcel.letter_count
            if parcel.letter_count:
                response = await self._exchange(link, parcel)
                for batch, code in outcomes_of(parcel.take(), response):
                    self._on_outcome(batch, refusal_of(code))
        except RefusedError as error:
            refusal = error
        except (OttlaError, OSError, trio.TooSlowError):
            await link.close()
        except Exception as error:
            self._sender.errors.note("dead letters", f"to broker {self._node_id}", error)
            await link.close()
        finally:
            self._in_flight_count = 0
            for batch in parcel.take():
                self._on_outcome(batch, refusal)

    async def _exchange(self, link: PeerConnection, parcel: "Parcel") -> ProduceResponse:
        timeout_ms = self._sender.config.request_timeout_ms
        request = request_of(parcel.batches.values(), timeout_ms)
        groups = {led.key.group_id for one in parcel.batches.values() for led, _ in one.letters}
        self._sender.figures.requests.update(groups)
        with trio.fail_after((timeout_ms + REQUEST_MARGIN_MS) / 1000):
            connection = await link.connected()
            version = connection.version_of(request.API_KEY)
            return await connection.request(request, ProduceResponse, version)

    def _on_outcome(self, batch: LetterBatch[LedShare], refusal: RefusedError | None) -> None:
        sender, figures = self._sender, self._sender.figures
        by_led = batch.by_owner()
        if refusal is not None:
            figures.failed_requests.update({led.key.group_id for led in by_led})
            batch.note_refusal(refusal.code)
        for led, letters in by_led.items():
            if refusal is None:
                figures.written[led.key.group_id] += len(letters)
                sender.settle(led, letters, is_written=True)
            else:
                sender.fail(led, letters, refusal)


class Parcel:
    """Contents of one Produce request with dead letters to one broker: the batches, and the letters
    of each batch."""

    def __init__(self, sender: DeadLetterSender, node_id: NodeId) -> None:
        self.batches: dict[tuple[UUID, int], LetterBatch[LedShare]] = {}
        """Batches of dead letters by topic id and partition index."""
        self._sender = sender
        self._node_id = node_id

    @property
    def letter_count(self) -> int:
        """Number of dead letters in this Produce request."""
        return sum(len(batch.letters) for batch in self.batches.values())

    @property
    def is_full(self) -> bool:
        """True if this Produce request has no room for further dead letters."""
        size = sum(batch.size_bytes for batch in self.batches.values())
        return size >= BYTES_PER_REQUEST or self.letter_count >= LETTERS_PER_REQUEST

    def take(self) -> list[LetterBatch[LedShare]]:
        """Remove and return the request's batches of dead letters."""
        taken, self.batches = list(self.batches.values()), {}
        return taken

    async def fill(self, jobs: deque[LetterJob]) -> None:
        """Move queued dead letters to the batches of this request, until the request is full.

        A job contains the queued letters of one share partition. At least one letter of each job is
        moved if the batch for its partition is not full.
        """
        for _ in range(len(jobs)):
            if self.is_full:
                return
            job = jobs[0]
            await self._add(job)
            if job.letters:
                jobs.rotate(-1)
            else:
                jobs.popleft()

    async def _add(self, job: LetterJob) -> None:
        """Add the next dead letters of a job (the queued letters of one share partition) to the
        request. Letters that cannot be sent are reported as failed."""
        led, sender = job.led, self._sender
        if led.stage is Stage.DROPPED:
            job.letters.clear()  # The next leader sends them.
            return
        try:
            route = sender.route_of(led)
            if route.leader != self._node_id:
                raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if led.settings.has_whole_dead_letters:
                await self._add_copies(job, route)
            else:
                while job.letters and self._put(route, job, None) and not self.is_full:
                    pass
            return
        except RefusedError as refusal:
            failure = refusal
        except OSError as error:
            failure = RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        except CorruptDataError as error:
            failure = RefusedError(ErrorCode.CORRUPT_MESSAGE, str(error))
        except Exception as error:
            sender.errors.note("dead letters", led.key, error)
            failure = RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
        failed = list(job.letters)
        job.letters.clear()
        sender.fail(led, failed, failure)

    async def _add_copies(self, job: LetterJob, route: LetterRoute) -> None:
        """Read records from the log of the source partition, and add dead letters with copies of
        these records."""
        led, letters, figures = job.led, job.letters, self._sender.figures
        log = led.log()
        lost: list[DeadLetter] = []
        while letters and letters[0].offset < log.log_start_offset:
            lost.append(letters.popleft())
        if letters:
            offsets = [one.offset for one in islice(letters, LETTERS_PER_REQUEST)]
            data = await log.read_bytes(
                Offset(offsets[0]), bytes_max=READ_BYTES, end_offset=log.high_watermark
            )
            found = records_in(data, offsets)
            if found.end_offset <= offsets[0]:
                raise RefusedError(ErrorCode.OFFSET_NOT_AVAILABLE, "its records are not readable")
            while letters and letters[0].offset < found.end_offset and not self.is_full:
                offset = letters[0].offset
                record = found.records.get(offset)
                if record is None and offset not in found.unreadable:
                    lost.append(letters.popleft())
                elif not self._put(route, job, record):
                    break
                elif record is None:
                    figures.damaged_count += 1
        figures.lost_count += len(lost)
        self._sender.settle(led, lost, is_written=True)

    def _put(self, route: LetterRoute, job: LetterJob, record: Record | None) -> bool:
        """Move the first dead letter of a job (the queued letters of one share partition) to the
        batch for its partition. Returns False if the batch is full."""
        led, letter = job.led, job.letters[0]
        source = LetterSource(
            led.key.group_id,
            led.partition.topic,
            led.key.partition,
            letter.offset,
            letter.count,
            letter.is_rejected,
        )
        key = route.topic_id, route.partition
        batch = self.batches.get(key)
        if batch is None:
            batch = self.batches[key] = LetterBatch(route)
        written = letter_of(source, record, now_ms=self._sender.clock.wall_ms())
        if not batch.add(led, letter, written):
            return False
        job.letters.popleft()
        return True


def refusal_of(code: ErrorCode) -> RefusedError | None:
    """Return the error for a failed write of dead letters, with advice for the operator. Returns
    None if `code` is NONE."""
    if code is ErrorCode.NONE:
        return None
    return RefusedError(code, ADVICE.get(code))
