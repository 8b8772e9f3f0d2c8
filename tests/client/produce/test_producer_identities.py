"""Producer ids of earlier producers.

Each is reused by one producer at a time, with the next epoch, in the same cluster.
"""

from ottla.client.produce.accumulator import ProducerIdentity
from ottla.client.produce.producer_identities import ProducerIdentities
from ottla.model.ids import ProducerId
from ottla.model.limits import INT16_MAX

WHO = ProducerIdentity(ProducerId(7), 3)


def test_the_next_producer_of_a_cluster_goes_on_at_the_next_epoch() -> None:
    identities = ProducerIdentities()
    identities.give_back("a", WHO)

    assert identities.take("b") is None
    assert identities.take("a") == (7, 4)
    assert identities.take("a") is None, "it has an owner"


def test_two_at_once_are_two() -> None:
    identities = ProducerIdentities()
    for number in (1, 2):
        identities.give_back("a", ProducerIdentity(ProducerId(number), 0))

    assert {identities.take("a"), identities.take("a")} == {(1, 1), (2, 1)}


def test_nothing_is_kept_that_could_be_mistaken_or_has_no_epoch_left() -> None:
    identities = ProducerIdentities()
    for cluster_id, identity in (
        (None, WHO),
        ("", WHO),
        ("a", None),
        ("a", WHO._replace(epoch=INT16_MAX - 1)),
    ):
        identities.give_back(cluster_id, identity)

    assert [identities.take(one) for one in (None, "", "a")] == [None] * 3
