"""Machines whose id is missing or shared are named in a warning."""

from uuid import UUID

from ottla.broker.cluster.membership.registration import failure_domain_warnings
from ottla.metadata.image import BrokerRegistration, Endpoint
from ottla.model.ids import NodeId
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2


def wanted(name: str, host: str = "machine") -> pb.RegisterRequest:
    """Return the request of broker 1, which clients reach by a name."""
    return pb.RegisterRequest(
        broker_id=1, host=host, listeners=[metadata_pb2.Endpoint(name="A", host=name, port=9092)]
    )


def registered(node_id: int, name: str, host: str = "machine") -> BrokerRegistration:
    """Return another broker of the cluster."""
    return BrokerRegistration(
        id=NodeId(node_id),
        epoch=1,
        incarnation_id=UUID(int=node_id),
        endpoints=(Endpoint("A", name, 9092, 0),),
        host=host,
    )


def test_brokers_of_one_machine_are_no_matter() -> None:
    others = [registered(2, "one"), registered(3, "three", host="other")]
    assert list(failure_domain_warnings(wanted("one"), others, has_machine_id=True)) == []


def test_a_machine_id_that_another_name_has_is_named() -> None:
    others = [registered(1, "old"), registered(2, "two"), registered(3, "three")]

    (warning,) = failure_domain_warnings(wanted("one"), others, has_machine_id=True)

    assert "broker 1 (one) and broker 2 (two)" in warning
    assert "set ottla.failure.domain.host" in warning


def test_a_missing_machine_id_is_named() -> None:
    (warning,) = failure_domain_warnings(wanted("one", host="pod-1"), [], has_machine_id=False)

    assert warning.startswith("this machine has no machine id")
    assert "pod-1" in warning
