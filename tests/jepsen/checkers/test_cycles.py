"""A dependency on a later operation is a cycle, which is reported with its edges."""

from itertools import product
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.jepsen.checkers.cycles import check_cycles
from ottla.jepsen.checkers.graph import shortest_way, strongly_connected
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import EventKind, Json
from tests.jepsen.checkers.queue_histories import HistoryWeather, queue_history
from tests.jepsen.checkers.script import Script

GRAPHS = st.integers(1, 7).flatmap(
    lambda count: st.lists(
        st.lists(st.integers(0, count - 1), max_size=3), min_size=count, max_size=count
    )
)


@given(GRAPHS)
@settings(max_examples=300, deadline=None)
def test_components_are_the_nodes_that_reach_each_other(graph: list[list[int]]) -> None:
    nodes = range(len(graph))
    reaches = {(node, other) for node in nodes for other in graph[node]}
    for middle, start, end in product(nodes, repeat=3):
        if (start, middle) in reaches and (middle, end) in reaches:
            reaches.add((start, end))
    slow = {
        frozenset({node, *(o for o in nodes if {(node, o), (o, node)} <= reaches)})
        for node in nodes
    }
    found = strongly_connected(graph)
    assert sorted(found) == sorted(sorted(each) for each in slow if len(each) > 1)


def test_a_long_chain_is_no_cycle_and_needs_no_recursion() -> None:
    count = 100_000
    chain = [[node + 1] for node in range(count - 1)] + [[]]
    assert strongly_connected(chain) == []
    ring = [*chain[:-1], [0]]
    assert strongly_connected(ring) == [list(range(count))]


def test_a_shortest_way_has_both_its_ends() -> None:
    graph = [[1, 2], [3], [3], [], []]
    assert shortest_way(0, 3, graph.__getitem__) == [0, 1, 3]
    assert shortest_way(0, 0, graph.__getitem__) == [0]
    assert shortest_way(0, 4, graph.__getitem__) is None


@given(st.integers(0, 1 << 32), st.booleans())
@settings(max_examples=80, deadline=None)
def test_histories_of_logs_that_keep_every_promise_have_no_cycles(seed: int, has_ww: bool) -> None:
    weather = HistoryWeather(trouble=0.3, has_transactions=True)
    verdict = check_cycles(queue_history(Random(seed), weather), RunFacts(ww_edges=has_ww))
    assert verdict.valid is True
    assert verdict.findings_count == {}


def sending(value: int, offset: int | None = None, key: str = "q-0") -> Json:
    return ["send", key, value if offset is None else [offset, value]]


def polling(*records: list[int], key: str = "q-0") -> Json:
    return ["poll", {key: list(records)}]


def test_two_transactions_that_read_each_other_go_round_by_what_they_read() -> None:
    script = Script()
    script.begins(0, "txn", [sending(1), ["poll"]])
    script.begins(1, "txn", [sending(2), ["poll"]])
    script.ends(0, [sending(1, 0), polling([1, 2])])
    script.ends(1, [sending(2, 1), polling([0, 1])])
    verdict = check_cycles(script.history(), RunFacts())
    assert verdict.findings_count == {"G1c": 1}
    assert verdict.valid is False
    assert verdict.findings[0].operations == (2, 3)
    assert "2 operations form a cycle: 2 -wr-> 3 -wr-> 2" in verdict.findings[0].detail
    with_ww = check_cycles(script.history(), RunFacts(ww_edges=True))
    assert with_ww.findings_count == {"G1c": 1}
    assert with_ww.valid is True, "with the order of logs Kafka promises less"


def test_what_a_process_did_before_and_read_after_goes_round_with_its_own_order() -> None:
    script = Script()
    # Both began before either ended, so time alone orders nothing between the two processes.
    script.begins(2, "txn", [sending(1, key="q-1"), ["poll"]])
    script.does(0, "poll", [["poll"]], [polling([0, 1], key="q-1")])
    script.does(0, "send", [sending(2)], [sending(2, 0)])
    script.ends(2, [sending(1, 0, key="q-1"), polling([0, 2])])
    verdict = check_cycles(script.history(), RunFacts())
    assert verdict.findings_count == {"G1c-process": 1}


def test_what_was_read_before_it_was_sent_goes_round_with_time() -> None:
    script = Script()
    script.does(0, "poll", [["poll"]], [polling([0, 1])])
    script.does(1, "send", [sending(1)], [sending(1, 0)])
    verdict = check_cycles(script.history(), RunFacts())
    assert verdict.findings_count == {"G1c-realtime": 1}
    assert verdict.findings[0].operations == (1, 3)
    assert "realtime" in verdict.findings[0].detail
    assert "wr" in verdict.findings[0].detail


def test_time_orders_operations_that_have_others_between_them() -> None:
    script = Script()
    script.does(0, "poll", [["poll"]], [polling([0, 1])])
    for thread in (2, 3):
        script.does(thread, "poll", [["poll"]], [["poll", {}]])
    script.does(1, "send", [sending(1)], [sending(1, 0)])
    assert check_cycles(script.history(), RunFacts()).findings_count == {"G1c-realtime": 1}


def test_unsent_and_failed_values_have_no_dependencies() -> None:
    script = Script()
    script.does(0, "txn", [["poll"], sending(3, key="q-1")], [polling([0, 1], [1, 7])])
    script.does(1, "send", [sending(1)], kind=EventKind.FAIL)
    assert check_cycles(script.history(), RunFacts()).findings_count == {}


def test_records_of_two_transactions_in_turn_go_round_by_their_order_if_it_is_asked_for() -> None:
    script = Script()
    script.begins(0, "txn", [sending(1), sending(3)])
    script.begins(1, "txn", [sending(2), sending(4)])
    script.ends(0, [sending(1, 0), sending(3, 2)])
    script.ends(1, [sending(2, 1), sending(4, 3)])
    assert check_cycles(script.history(), RunFacts()).findings_count == {}
    verdict = check_cycles(script.history(), RunFacts(ww_edges=True))
    assert verdict.findings_count == {"G0": 1}
    assert verdict.valid is True


def test_a_process_whose_later_record_lies_first_goes_round_by_its_own_order_and_ww() -> None:
    script = Script()
    script.sends(0, 1, 1)
    script.sends(0, 2, 0)
    verdict = check_cycles(script.history(), RunFacts(ww_edges=True))
    assert verdict.findings_count == {"G0-process": 1}
    other = Script()
    other.sends(0, 1, 1)
    other.sends(1, 2, 0)
    verdict = check_cycles(other.history(), RunFacts(ww_edges=True))
    assert verdict.findings_count == {"G0-realtime": 1}


def test_an_operation_of_unknown_end_is_ordered_by_reads_alone() -> None:
    script = Script()
    script.does(0, "send", [sending(1)], kind=EventKind.INFO)
    script.does(1, "poll", [["poll"]], [polling([0, 1])])
    script.does(2, "send", [sending(2)], kind=EventKind.FAIL)
    assert check_cycles(script.history(), RunFacts()).valid is True
    script = Script()
    script.does(1, "poll", [["poll"]], [polling([0, 1])])
    script.does(0, "send", [sending(1)], kind=EventKind.INFO)
    assert check_cycles(script.history(), RunFacts()).findings_count == {"G1c-realtime": 1}
