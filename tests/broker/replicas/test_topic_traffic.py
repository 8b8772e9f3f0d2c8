"""Bytes and records by topic."""

from ottla.broker.replicas.topic_traffic import BrokerTraffic

BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
FAILED = "kafka_server_brokertopicmetrics_failedproducerequests_total"


def samples_of(traffic: BrokerTraffic, name: str) -> dict[tuple[str, ...], object]:
    (family,) = [family for family in traffic.families() if family.name == name]
    return dict(sample for sample in family.samples if sample is not None)


def test_the_sum_of_all_keeps_what_a_topic_had_that_left() -> None:
    traffic = BrokerTraffic()
    traffic.of("a").bytes_in += 5
    traffic.of("b").bytes_in += 2
    traffic.forget("a")
    traffic.forget("never-here")

    assert samples_of(traffic, BYTES_IN) == {(): 7, ("b",): 2}

    traffic.of("a").bytes_in += 1
    assert samples_of(traffic, BYTES_IN) == {(): 8, ("b",): 2, ("a",): 1}


def test_names_that_strangers_make_up_get_no_rows() -> None:
    traffic = BrokerTraffic()
    traffic.of("a")
    for at in range(100):
        traffic.note_failed_produce(f"made-up-{at}")
    traffic.note_failed_produce("a")

    assert samples_of(traffic, FAILED) == {(): 101, ("a",): 1}


def test_traffic_of_followers_and_of_consumers_is_counted_apart() -> None:
    traffic = BrokerTraffic().of("a")
    traffic.note_fetched(10, is_from_follower=True, is_refused=False)
    traffic.note_fetched(3, is_from_follower=False, is_refused=False)
    traffic.note_fetched(0, is_from_follower=False, is_refused=True)

    assert (traffic.replication_bytes_out, traffic.bytes_out) == (10, 3)
    assert (traffic.fetch_requests, traffic.failed_fetches) == (2, 1)
