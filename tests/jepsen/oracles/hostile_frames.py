"""Frames of strangers for a Kafka listener: well-formed requests of every API, and damaged ones.

`FrameMaker(random, names, served).next()` yields one after the other, the same for the same seed:
each API key in turn, served ones more often, in a supported or an unsupported version. A request is
one of the shapes of `kafka_requests.py`, or an honest one with spikes (see `spikes.py`). Some are
then cut, garbled, announced longer than they are, or sent many at once. The `Manner` of a frame is
how it is sent.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.model.limits import INT32_MAX, KIB, MIB
from ottla.wire.apis import API, CREATE_TOPICS, DRAIN_BROKER, METADATA, UNREGISTER_BROKER
from ottla.wire.codec import encode
from ottla.wire.codec_types import Message
from ottla.wire.headers import encode_request_header
from tests.jepsen.oracles.kafka_requests import SHAPES, ClusterNames, KafkaShape, request_of
from tests.jepsen.oracles.kafka_values import RESOURCE_TYPES
from tests.jepsen.oracles.spikes import spiked, sweep, turned

MAKES_TOPICS = frozenset((METADATA, CREATE_TOPICS))
TAKES_BROKERS_AWAY = frozenset((UNREGISTER_BROKER, DRAIN_BROKER))
"""Requests that rightly end the work of an existing broker: here they name none, and undo."""

NO_BROKER = 1_000
CLIENT_ID = "stranger\x1b[2J"
SIZES = (256, 256, KIB, KIB, KIB, 4 * KIB, 4 * KIB, 64 * KIB)
"""Frame sizes, small ones more often: large ones take long to make, and their cost is another
oracle's subject."""
TOPIC_NAMES_BYTES_MAX = 512
"""So few topics are made at a time: a thousand more would be a test of something else."""

UNKNOWN_KEYS = (-1, 94, 1_000, 19_999, 20_004, 32_767)
PIPELINED_COUNT = 40
LENGTHS = (-INT32_MAX, -1, 0, 1, 3, 100 * MIB, 100 * MIB + 1, INT32_MAX)
SWEEP_SHARE = 0.4
WELL_FORMED_SHARE = 0.4
"""Shares of the frames; the rest is spoilt, or of no API at all."""

SPIKED_SHARE = 0.5
"""Of the well-formed requests."""

SPIKED_SHAPES = (KafkaShape.ONE, KafkaShape.ONE, KafkaShape.KNOWN, KafkaShape.KNOWN_NESTED)
SPIKED_BYTES_MAX = 600
SERVED_TIMES = 3
"""Weight of a served API against one that is not served."""


class Manner(Enum):
    """Manner in which a frame is sent."""

    WHOLE = "at once; its answer is waited for"
    ABANDONED = "at once; the connection is reset before an answer"
    SLOW = "a few bytes at a time, never to the end"
    HELD = "at once, though more is announced; the connection stays open"


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes for a connection of their own, with a description."""

    api_key: int
    version: int
    what: str
    manner: Manner
    data: bytes

    def __str__(self) -> str:
        name = API[self.api_key].name if self.api_key in API else "no API"
        return (
            f"{name} ({self.api_key}) v{self.version}, {self.what}, "
            f"{len(self.data)} bytes, {self.manner.name.lower()}"
        )

    def to_json(self) -> dict[str, object]:
        """Return the frame as a file keeps it."""
        return {
            "api_key": self.api_key,
            "version": self.version,
            "what": self.what,
            "manner": self.manner.name,
            "data": self.data.hex(),
        }

    @staticmethod
    def from_json(kept: Mapping[str, Any]) -> "Frame":
        """Return the frame that a file kept."""
        manner, data = Manner[kept["manner"]], bytes.fromhex(kept["data"])
        return Frame(kept["api_key"], kept["version"], kept["what"], manner, data)


class FrameMaker:
    """Makes frames by chance; `served` are the keys of the APIs that get an answer."""

    def __init__(
        self, random: Random, names: ClusterNames, served: Collection[int] = frozenset()
    ) -> None:
        self.names = names
        self._random = random
        self._served = sorted(served & API.keys())
        self._keys = self._in_turn()
        self._sweep = sweep(self._served, random, names)

    def next(self) -> Frame:
        """Return the next frame."""
        drawn = self._random.random()
        if drawn < SWEEP_SHARE and self._served:
            return self._swept()
        key = next(self._keys)
        if drawn < SWEEP_SHARE + WELL_FORMED_SHARE:
            return self._well_formed(key)
        if drawn < 0.95:
            return self._spoilt(self._well_formed(key))
        return self._unknown()

    def _in_turn(self) -> Iterator[int]:
        while True:
            keys = [*API, *self._served * (SERVED_TIMES - 1)]
            self._random.shuffle(keys)
            yield from keys

    def _swept(self) -> Frame:
        key, version, message, what = next(self._sweep)
        if key in TAKES_BROKERS_AWAY:
            _name_no_broker(message)
        data = self._framed(key, version, encode(message, version))
        return Frame(key, version, what, Manner.WHOLE, data)

    def _well_formed(self, key: int) -> Frame:
        api = API[key]
        version = self._random.randint(api.lowest, api.highest)
        is_spiked = self._random.random() < SPIKED_SHARE
        shape = self._random.choice(SPIKED_SHAPES if is_spiked else SHAPES)
        bytes_max = SPIKED_BYTES_MAX if is_spiked else self._random.choice(SIZES)
        if key in MAKES_TOPICS:
            bytes_max = TOPIC_NAMES_BYTES_MAX
        message = request_of(
            shape,
            key,
            version,
            FuzzRng(self._random),
            turned(self.names, self._random),
            bytes_max=bytes_max,
            resource_type=self._random.choice(tuple(RESOURCE_TYPES)),
        )
        what = shape.name.lower()
        if is_spiked:
            what += spiked(message, version, FuzzRng(self._random), self.names)
        if key in TAKES_BROKERS_AWAY:
            _name_no_broker(message)
        manner = Manner.ABANDONED if self._random.random() < 0.1 else Manner.WHOLE
        return Frame(
            key, version, what, manner, self._framed(key, version, encode(message, version))
        )

    def _spoilt(self, frame: Frame) -> Frame:
        """Return a damaged version of a good frame: half of it, garbage, or a wrong length."""
        data, key, version = frame.data, frame.api_key, frame.version
        random = self._random
        match random.randrange(7):
            case 0:
                cut = random.randrange(4, len(data))
                body = (cut - 4).to_bytes(4) + data[4:cut]
                return Frame(key, version, f"{frame.what}, cut short", Manner.WHOLE, body)
            case 1:
                head = self._framed(key, version, random.randbytes(random.choice((1, 40, 4_000))))
                return Frame(key, version, "garbage behind a header", Manner.WHOLE, head)
            case 2:
                return Frame(
                    key, version, f"{frame.what}, garbled", Manner.WHOLE, self._garbled(data)
                )
            case 3:
                wrong = random.choice((-1, API[key].highest + 1, 99, 32_767))
                body = data[:6] + wrong.to_bytes(2, signed=True) + data[8:]
                return Frame(key, wrong, f"{frame.what}, wrong version", Manner.WHOLE, body)
            case 4:
                length = random.choice(LENGTHS)
                body = length.to_bytes(4, signed=True) + data[4:]
                return Frame(key, version, f"announced as {length} bytes", Manner.HELD, body)
            case 5:
                return Frame(key, version, f"{frame.what}, slowly", Manner.SLOW, data[:-1])
        if len(data) > KIB:
            return Frame(key, version, f"{frame.what}, twice", Manner.WHOLE, data * 2)
        return Frame(key, version, f"{frame.what}, pipelined", Manner.WHOLE, data * PIPELINED_COUNT)

    def _garbled(self, data: bytes) -> bytes:
        """Change some bytes of a body, small counts to large ones above all."""
        spoilt = bytearray(data)
        for _ in range(self._random.choice((1, 1, 2, 8))):
            at = self._random.randrange(8, len(spoilt))
            spoilt[at] = self._random.choice((0, 1, 0x7F, 0x80, 0xFF, self._random.randrange(256)))
        return bytes(spoilt)

    def _unknown(self) -> Frame:
        key = self._random.choice(UNKNOWN_KEYS)
        body = key.to_bytes(2, signed=True) + b"\0\0\0\0\0\7\xff\xff"
        data = len(body).to_bytes(4) + body
        return Frame(key, 0, "an unknown API", Manner.WHOLE, data)

    def _framed(self, key: int, version: int, body: bytes) -> bytes:
        header = encode_request_header(key, version, self._random.getrandbits(31), CLIENT_ID)
        return (len(header) + len(body)).to_bytes(4) + header + body


def _name_no_broker(message: Message) -> None:
    for name, value in (("broker_id", NO_BROKER), ("undo", True)):
        if hasattr(message, name):
            setattr(message, name, value)
