"""Dead letter topic of a random walk, and the produce requests in flight to it.

Requests and dead letters are encoded by the code that brokers use. A request arrives at any time,
even after its sender has given up waiting. A response may be lost. The topic may be deleted, full
or closed to the brokers' principal, and is then repaired.
"""

from collections.abc import Callable
from typing import Generic, TypeVar
from uuid import UUID

from ottla.broker.shares.dead_letter_topic import (
    HEADER_PREFIX,
    LetterRoute,
    LetterSource,
    TopicOfLetters,
    letter_of,
    refusal_of_topic,
)
from ottla.broker.shares.dead_letters import DeadLetter
from ottla.broker.shares.letter_batches import LetterBatch, outcomes_of, records_in, request_of
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.shares.share_log import ShareLog, record_at
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.wire.batch import batches
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Records
from ottla.wire.messages.produce_request import ProduceRequest
from ottla.wire.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.wire.records import Record, scan

GROUP, SOURCE, TOPIC = "workers", "jobs", "dlq.jobs"
VERSION = 13
LETTERS_PER_BATCH = 5

OPEN, OWN_SOURCE, DELETED = "open", "its own source", "deleted"
FAULTS = {
    DELETED: ErrorCode.UNKNOWN_TOPIC_ID,
    "unauthorised": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "full": ErrorCode.KAFKA_STORAGE_ERROR,
    "of small batches": ErrorCode.MESSAGE_TOO_LARGE,
}
"""Faulty states of the dead letter topic in which it refuses records, with the error code of
each."""
STATES = (OPEN, OPEN, OPEN, OWN_SOURCE, *FAULTS)

Leader = TypeVar("Leader")


class LetterPost(Generic[Leader]):
    """One produce request with dead letters, in flight to the dead letter topic."""

    def __init__(
        self,
        batch: LetterBatch[Leader],
        state_epoch: int,
        on_done: Callable[[list[DeadLetter], bool], None],
    ) -> None:
        self.batch = batch
        self.state_epoch = state_epoch
        self.is_answered = False
        self._on_done = on_done

    def answer(self, code: ErrorCode) -> None:
        """Pass the first outcome of this request to the leader that sent it. Later outcomes are
        ignored."""
        if not self.is_answered:
            self.is_answered = True
            letters = [letter for _, letter in self.batch.letters]
            self._on_done(letters, code is ErrorCode.NONE)


class WalkedLetters(Generic[Leader]):
    """Dead letter topic, and the produce requests that have not arrived at it."""

    def __init__(self, chance: Chance, rare: RareStates, log: ShareLog) -> None:
        self._chance = chance
        self._rare = rare
        self._log = log
        self.posts: list[LetterPost[Leader]] = []
        self.state = OPEN
        self.is_faulty = True
        """True while responses of the dead letter topic may be lost."""
        self.written: dict[tuple[int, int], int] = {}
        """Number of dead letters written to the topic, by (state epoch of the sender, offset of the
        record)."""

    def send(
        self,
        leader: Leader,
        state_epoch: int,
        letters: list[DeadLetter],
        on_done: Callable[[list[DeadLetter], bool], None],
        now_ms: int,
    ) -> None:
        """Send a share partition leader's dead letters. If some need no request, report their
        outcome at once to `on_done`."""
        name = SOURCE if self.state == OWN_SOURCE else TOPIC
        reason = refusal_of_topic(
            TopicOfLetters(name, 1, True), source=SOURCE, prefix="", is_auto_created=False
        )
        if reason is not None:
            self._rare.sometimes("letters: the topic is its own source")
            on_done(letters, False)
            return
        gone: list[DeadLetter] = []
        batch = self._new_batch()
        for letter in letters:
            copied = self._record(letter.offset)
            if copied is None:
                self._rare.sometimes("letters: a record is no longer in the log")
                gone.append(letter)
                continue
            source = LetterSource(GROUP, SOURCE, 0, letter.offset, letter.count, letter.is_rejected)
            record = letter_of(source, copied, now_ms=now_ms)
            is_full = len(batch.letters) >= LETTERS_PER_BATCH
            if is_full or not batch.add(leader, letter, record):
                self.posts.append(LetterPost(batch, state_epoch, on_done))
                batch = self._new_batch()
                batch.add(leader, letter, record)
        if batch.letters:
            self.posts.append(LetterPost(batch, state_epoch, on_done))
        if gone:
            on_done(gone, True)

    def _new_batch(self) -> LetterBatch[Leader]:
        return LetterBatch(LetterRoute(TOPIC, UUID(int=9, version=4), 0, NodeId(1), 1 << 20))

    def _record(self, offset: int) -> Record | None:
        """Return the record at an offset as a leader reads it from the log, or None if it is no
        longer in the log."""
        if offset < self._log.start_offset:
            return None
        found = records_in(self._log.encoded(offset), [offset])
        if found.end_offset <= offset:
            raise Violation("EveryLetterCanBeSent", f"offset {offset} cannot be read")
        return found.records.get(offset)

    def deliver(self) -> None:
        """Deliver a request to the dead letter topic. In some cases its response is lost."""
        if not self.posts:
            return
        post = self.posts.pop(self._chance.below(len(self.posts)))
        if post.is_answered:
            self._rare.sometimes("letters: a letter arrives after its sender gave up")
        code = self._write(post)
        if self.is_faulty and self._chance.below(6) == 5:
            self._rare.sometimes("letters: an answer is lost")
            code = ErrorCode.NETWORK_EXCEPTION
        post.answer(code)

    def _write(self, post: LetterPost[Leader]) -> ErrorCode:
        """Write the dead letters of a request to the topic, and return the error code of the
        response."""
        refusal = FAULTS.get(self.state, ErrorCode.NONE)
        if refusal is not ErrorCode.NONE:
            self._rare.sometimes(f"letters: the topic is {self.state}")
        data = encode(request_of((post.batch,), 1_000), VERSION)
        request = decode(ProduceRequest, VERSION, data)
        (topic,) = request.topic_data
        (part,) = topic.partition_data
        if refusal is ErrorCode.NONE:
            self._append(post.state_epoch, _bytes_of(part.records))
        response = ProduceResponse(
            responses=[
                TopicProduceResponse(
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(index=part.index, error_code=refusal)
                    ],
                )
            ]
        )
        answer = decode(ProduceResponse, VERSION, encode(response, VERSION))
        ((_, code),) = outcomes_of((post.batch,), answer)
        return code

    def _append(self, state_epoch: int, data: bytes) -> None:
        for at, header in batches(data):
            for letter in scan(data, at, header):
                headers = dict(letter.headers)
                offset = int(headers.get(HEADER_PREFIX + "offset") or -1)
                if offset < 0:
                    raise Violation("LettersNameTheirRecord", str(letter.headers))
                if not _is_copy(letter, record_at(offset)):
                    raise Violation("LettersCopyTheirRecords", f"offset {offset}: {letter}")
                key = state_epoch, offset
                self.written[key] = self.written.get(key, 0) + 1
                if self.written[key] > 1:
                    self._rare.sometimes("letters: a record has two")

    def give_up(self) -> None:
        """End a leader's wait for the response to a request with dead letters."""
        pending = [post for post in self.posts if not post.is_answered]
        if pending:
            self._chance.pick(pending).answer(ErrorCode.REQUEST_TIMED_OUT)

    def lose(self) -> None:
        """Lose a request with dead letters that is in flight."""
        if self.posts:
            self._rare.sometimes("letters: a letter is lost")
            post = self.posts.pop(self._chance.below(len(self.posts)))
            post.answer(ErrorCode.NETWORK_EXCEPTION)

    def change(self) -> None:
        """Break the dead letter topic in a random way, or repair it."""
        self.state = self._chance.pick(STATES)

    def repair(self) -> None:
        """End all faults of the dead letter topic and of the network to it."""
        self.state, self.is_faulty = OPEN, False


def _is_copy(letter: Record, record: Record) -> bool:
    """Return whether a dead letter has the content of its record, and further headers after the
    record's."""
    return (
        (letter.key, letter.value, letter.timestamp_ms)
        == (record.key, record.value, record.timestamp_ms)
        and letter.headers[: len(record.headers)] == record.headers
        and len(letter.headers) == len(record.headers) + 6
    )


def _bytes_of(records: Records | None) -> bytes:
    assert isinstance(records, bytes | bytearray | memoryview)
    return bytes(records)
