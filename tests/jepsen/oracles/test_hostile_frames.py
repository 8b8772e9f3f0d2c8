"""Frames of strangers for every API, the same for the same seed."""

from random import Random

from ottla.wire.apis import API
from tests.jepsen.oracles.hostile_frames import FrameMaker, Manner
from tests.jepsen.oracles.kafka_values import ClusterNames

NAMES = ClusterNames(topics=(), groups=("g",))


def test_every_api_is_sent_well_formed_and_spoilt_and_the_same_for_the_same_seed() -> None:
    makers = [FrameMaker(Random("7"), NAMES, frozenset((3, 44))) for _ in range(2)]
    frames, again = ([maker.next() for _ in range(12 * len(API))] for maker in makers)

    assert frames == again
    assert {frame.api_key for frame in frames} >= set(API)
    assert {frame.manner for frame in frames} == set(Manner)
    assert all(len(frame.data) >= 4 for frame in frames)
