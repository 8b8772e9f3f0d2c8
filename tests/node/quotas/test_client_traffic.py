"""Counts of all clients, which are bounded, and made only while an operator watches."""

from ottla.node.quotas.client_traffic import CLIENTS_MAX, WATCH_MS_MAX, ClientTraffic


def note(traffic: ClientTraffic, client_id: str, size: int = 1) -> None:
    traffic.note("al", client_id, bytes_in=size, bytes_out=2 * size, used_ns=7)


def test_requests_of_a_client_add_up() -> None:
    traffic = ClientTraffic()
    traffic.watch(1_000, 0)
    note(traffic, "app", 10)
    note(traffic, "app", 30)
    ((names, counts),) = traffic.counts.items()
    assert names == ("al", "app")
    assert (counts.request_count, counts.bytes_in, counts.bytes_out) == (2, 40, 80)
    assert counts.used_ns == 14


def test_the_watch_lasts_as_long_as_it_is_asked_for_and_begins_at_zero() -> None:
    traffic = ClientTraffic()
    traffic.watch(1_000, 0)
    note(traffic, "app")
    traffic.watch(1_000, 900)
    assert not traffic.is_over(1_899)
    assert traffic.counts
    assert traffic.is_over(1_900)
    assert not traffic.is_watched
    traffic.watch(1, 5_000)
    assert not traffic.counts
    traffic.watch(10 * WATCH_MS_MAX, 5_000)
    assert traffic.is_over(5_000 + WATCH_MS_MAX)


def test_names_are_bounded_and_the_busiest_are_kept() -> None:
    traffic = ClientTraffic()
    traffic.watch(1_000, 0)
    note(traffic, "large", 1_000_000)
    for number in range(3 * CLIENTS_MAX):
        note(traffic, f"random-{number}")
        note(traffic, "x" * 1_000 + str(number % 2))
    assert len(traffic.counts) <= CLIENTS_MAX
    assert traffic.counts["al", "large"].request_count == 1
    assert max(len(client_id) for _, client_id in traffic.counts) <= 128
