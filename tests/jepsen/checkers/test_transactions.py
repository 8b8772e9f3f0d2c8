"""Transactions are whole, in time, of the producer that has the id, and go with their offsets."""

from itertools import pairwise, permutations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.jepsen.checkers.cycles import check_cycles
from ottla.jepsen.checkers.transactions import amount_of, check_transactions, input_of
from ottla.jepsen.checkers.verdict import RunFacts, Verdict
from ottla.jepsen.history import EventKind, History, Json
from tests.jepsen.checkers.script import Script

ALL_ANOMALIES = {"G1a", "G1b"}


def sending(*records: tuple[str, Json]) -> Json:
    """Return a transaction's sends: (key, value) as requested, (key, [offset, value]) as
    acknowledged."""
    return [["send", key, value] for key, value in records]


def verdict_of(script: Script, facts: RunFacts | None = None) -> Verdict:
    return check_transactions(script.history(), facts or RunFacts())


def commits(script: Script, thread: int, name: str, *records: tuple[str, Json]) -> None:
    """Note a transaction of [offset, value] records that commits."""
    asked = sending(*((key, value) for key, (_, value) in records))
    script.begins(thread, "txn", asked, name=name)
    script.does(7, "ask-commit", name)
    script.ends(thread, sending(*records))


def polls(script: Script, thread: int, **records: list[list[Json]]) -> None:
    found = {key.replace("_", "-"): value for key, value in records.items()}
    script.does(thread, "poll", [["poll"]], [["poll", found]], final=thread == 6)


def test_a_committed_transaction_that_is_read_afterwards_is_as_it_should_be() -> None:
    script = Script()
    commits(script, 0, "t1", ("q-0", [0, "a/+2/0"]), ("q-1", [0, "a/-2/1"]))
    polls(script, 6, q_0=[[0, "a/+2/0"]], q_1=[[0, "a/-2/1"]])
    verdict = verdict_of(script)
    assert verdict.valid is True
    assert verdict.findings_count == {}
    assert verdict.figures["committed"] == 1


def test_what_was_never_to_be_committed_is_read_as_an_aborted_read() -> None:
    script = Script()
    script.does(0, "txn", sending(("q-0", "a")), kind=EventKind.INFO, name="t1")
    polls(script, 1, q_0=[[0, "a"]])
    verdict = verdict_of(script)
    assert verdict.findings_count == {"G1a": 1}
    assert "transaction t1 was never to be committed" in verdict.findings[0].detail


def test_what_is_read_before_its_commit_is_asked_for_is_an_intermediate_read() -> None:
    script = Script()
    script.begins(0, "txn", sending(("q-0", "a")), name="t1")
    polls(script, 1, q_0=[[0, "a"]])
    script.does(7, "ask-commit", "t1")
    script.ends(0, sending(("q-0", [0, "a"])))
    assert verdict_of(script).findings_count == {"G1b": 1}


def test_a_poll_that_passes_over_a_part_of_a_transaction_is_an_intermediate_read() -> None:
    script = Script()
    commits(script, 0, "t1", ("q-0", [0, "a"]), ("q-0", [1, "b"]))
    commits(script, 1, "t2", ("q-0", [3, "c"]))
    polls(script, 2, q_0=[[0, "a"], [3, "c"]])
    assert verdict_of(script).findings_count == {"G1b": 1}


def test_a_poll_that_ends_within_a_transaction_is_none() -> None:
    script = Script()
    commits(script, 0, "t1", ("q-0", [0, "a"]), ("q-0", [1, "b"]), ("q-0", [2, "c"]))
    polls(script, 2, q_0=[[0, "a"], [1, "b"]])
    assert verdict_of(script).valid is True


def takes_over(script: Script, thread: int, producer: str) -> None:
    script.does(thread, "init", None, [7, 1], transactional_id="id", producer=producer)


def test_a_producer_that_commits_after_its_id_was_taken_over_is_a_zombie() -> None:
    script = Script()
    takes_over(script, 0, "old")
    script.begins(0, "txn", sending(("q-0", "a")), name="t1", producer="old")
    takes_over(script, 1, "new")
    script.does(7, "ask-commit", "t1")
    script.ends(0, sending(("q-0", [0, "a"])))
    verdict = verdict_of(script)
    assert verdict.findings_count == {"zombie-commit": 1}
    assert "had taken 'id' over" in verdict.findings[0].detail


def test_a_producer_that_asks_to_commit_while_its_id_is_taken_over_may_be_the_first() -> None:
    script = Script()
    takes_over(script, 0, "old")
    script.begins(1, "init", None, transactional_id="id", producer="new")
    script.begins(0, "txn", sending(("q-0", "a")), name="t1", producer="old")
    script.does(7, "ask-commit", "t1")
    script.ends(1, [7, 2])
    script.ends(0, sending(("q-0", [0, "a"])))
    assert verdict_of(script).valid is True


def test_amounts_that_do_not_add_up_name_the_transaction_that_lacks_a_part() -> None:
    script = Script()
    commits(script, 0, "t1", ("q-0", [0, "a/+2/0"]), ("q-1", [0, "a/-2/1"]))
    polls(script, 6, q_0=[[0, "a/+2/0"]])
    verdict = verdict_of(script)
    assert verdict.findings_count == {"bank-total": 1}
    assert verdict.findings[0].detail == "all amounts together are +2: t1 by +2"


def moved(script: Script, *, end: int | None, outputs: list[list[Json]]) -> Verdict:
    """Judge an input of two records, the offset committed for it, and its outputs."""
    commits(script, 0, "t1", ("in-0", [0, "a"]), ("in-0", [1, "b"]))
    for offset, value in outputs:
        commits(script, 1, f"m{offset}", ("out-0", [offset, value]))
    value = {"group": "movers", "keys": {"in-0": end}}
    script.does(2, "committed", None, value, final=True)
    polls(script, 6, in_0=[[0, "a"], [1, "b"]], out_0=outputs)
    return verdict_of(script)


def test_an_input_whose_offset_is_committed_has_one_output() -> None:
    assert moved(Script(), end=1, outputs=[[0, "m/0<a"]]).valid is True


def test_an_offset_that_is_committed_without_its_output_is_found() -> None:
    assert moved(Script(), end=2, outputs=[[0, "m/0<a"]]).findings_count == {"lost-output": 1}


def test_an_output_whose_offset_is_not_committed_is_found() -> None:
    assert moved(Script(), end=None, outputs=[[0, "m/0<a"]]).findings_count == {"early-output": 1}


def test_two_outputs_of_one_input_are_found() -> None:
    verdict = moved(Script(), end=1, outputs=[[0, "m/0<a"], [1, "n/0<a"]])
    assert verdict.findings_count == {"duplicate-output": 1}
    assert "'m/0<a' in out-0, 'n/0<a' in out-0" in verdict.findings[0].detail


def test_a_value_names_its_amount_or_its_input() -> None:
    assert [amount_of(value) for value in (5, "a/1", "a/-3/1", "m/1<a/-3/1")] == [0, 0, -3, 0]
    assert [input_of(value) for value in ("a/-3/1", "m/1<a/-3/1")] == [None, "a/-3/1"]


# ---- small histories, held to the definitions

KEYS = ("q-0", "q-1")


def small_history(rng: Random) -> History:
    """Return a history of a few transactions whose records are placed and read at random."""
    script = Script()
    count = rng.randint(2, 4)
    steps = [(number, step) for number in range(count) for step in ("begins", "asks", "ends")]
    polls_left = rng.randint(1, 3)
    offsets = {key: rng.sample(range(12), 12) for key in KEYS}
    parts = [
        [(rng.choice(KEYS), f"{number}.{part}") for part in range(rng.randint(1, 3))]
        for number in range(count)
    ]
    places = {value: offsets[key].pop() for one in parts for key, value in one}
    order = sorted(range(len(steps)), key=lambda _: rng.random())
    queue = sorted(order, key=lambda at: steps[at][0] if rng.random() < 0.6 else rng.random() * 3)
    done: dict[int, int] = {}
    for at in queue:
        number = steps[at][0]
        step = done.get(number, 0)
        done[number] = step + 1
        if polls_left and rng.random() < 0.4:
            polls_left -= 1
            seen: dict[str, list[list[Json]]] = {}
            for key, value in sorted(one for some in parts for one in some):
                if rng.random() < 0.5:
                    seen.setdefault(key, []).append([places[value], value])
            for records in seen.values():
                records.sort()
            script.does(7, "poll", [["poll"]], [["poll", seen]])
        if step == 0:
            script.begins(number, "txn", sending(*parts[number]), name=str(number))
        elif step == 1 and rng.random() < 0.8:
            script.does(6, "ask-commit", str(number))
        elif step == 2:
            kind = rng.choice((EventKind.OK, EventKind.OK, EventKind.FAIL, EventKind.INFO))
            known = sending(*((key, [places[value], value]) for key, value in parts[number]))
            script.ends(number, known if kind is EventKind.OK else None, kind)
    return script.history()


def slow_anomalies(history: History) -> set[str]:
    """Return which of G1a and G1b a history has, by their definitions."""
    found = set()
    asked = {each.invoke.value: each.invoke.index for each in history.operations("ask-commit")}
    places = {
        value: offset
        for poll in history.operations("poll")
        for records in poll.value[0][1].values()
        for offset, value in records
    }
    for write in history.operations("txn"):
        if write.kind is EventKind.OK:
            places.update((value, offset) for _, _, (offset, value) in write.value)
    for poll in history.operations("poll"):
        for key, records in poll.value[0][1].items():
            values = [value for _, value in records]
            for write in history.operations("txn"):
                name = write.extra.get("name") or write.invoke.value[0][2].partition(".")[0]
                own = [step for step in write.invoke.value if step[1] == key]
                seen = [step for step in own if step[2] in values]
                if not seen or write.kind is EventKind.FAIL:
                    continue
                if name not in asked:
                    found.add("G1a")
                elif poll.index < asked[name]:
                    found.add("G1b")
                for _, _, value in own:
                    is_within = records[0][0] < places.get(value, -1) < records[-1][0]
                    if is_within and value not in values:
                        found.add("G1b")
    return found


@given(st.integers(0, 1 << 32))
@settings(max_examples=200, deadline=None)
def test_small_histories_have_the_reads_that_their_definitions_find(seed: int) -> None:
    history = small_history(Random(seed))
    verdict = check_transactions(history, RunFacts())
    assert set(verdict.findings_count) & ALL_ANOMALIES == slow_anomalies(history)


def mutual_history(rng: Random) -> History:
    """Return a few transactions that overlap, with reads of their own, in any order of records."""
    script = Script()
    count = rng.randint(2, 5)
    parts = [
        [(rng.choice(KEYS), f"{number}.{part}") for part in range(rng.randint(1, 2))]
        for number in range(count)
    ]
    offsets = {key: rng.sample(range(12), 12) for key in KEYS}
    places = {value: offsets[key].pop() for one in parts for key, value in one}
    for number in range(count):
        script.begins(number, "txn", [*sending(*parts[number]), ["poll"]])
    for number in rng.sample(range(count), count):
        seen: dict[str, list[list[Json]]] = {}
        for key, value in (
            one for other in range(count) if other != number for one in parts[other]
        ):
            if rng.random() < 0.25:
                seen.setdefault(key, []).append([places[value], value])
        known = sending(*((key, [places[value], value]) for key, value in parts[number]))
        script.ends(number, [*known, ["poll", seen]])
    return script.history()


def slow_cycles(history: History) -> set[str]:
    """Return G0 and G1c by trying every row of operations."""
    operations = history.operations("txn")
    edges: dict[tuple[int, int], set[str]] = {}
    for a, first in enumerate(operations):
        for b, second in enumerate(operations):
            if a == b:
                continue
            for _, key, (offset, value) in first.value[:-1]:
                if any(read == value for _, read in second.value[-1][1].get(key, ())):
                    edges.setdefault((a, b), set()).add("wr")
                for _, other, (after, _) in second.value[:-1]:
                    if key == other and offset < after:
                        edges.setdefault((a, b), set()).add("ww")
    found = set()
    for length in range(2, len(operations) + 1):
        for row in permutations(range(len(operations)), length):
            ways = [edges.get(step, set()) for step in pairwise((*row, row[0]))]
            if all("ww" in way for way in ways):
                found.add("G0")
            if all(ways) and any("wr" in way for way in ways):
                found.add("G1c")
    return found


@given(st.integers(0, 1 << 32))
@settings(max_examples=200, deadline=None)
def test_small_histories_go_round_where_some_row_of_their_operations_does(seed: int) -> None:
    history = mutual_history(Random(seed))
    verdict = check_cycles(history, RunFacts(ww_edges=True))
    assert set(verdict.findings_count) & {"G0", "G1c"} == slow_cycles(history)


def test_a_cycle_is_reported_with_the_evidence_of_each_step() -> None:
    script = Script()
    script.begins(0, "txn", sending(("q-0", "a"), ("q-1", "b")))
    script.begins(1, "txn", [*sending(("q-0", "c")), ["poll"]])
    script.ends(0, sending(("q-0", [1, "a"]), ("q-1", [0, "b"])))
    script.ends(1, [*sending(("q-0", [0, "c"])), ["poll", {"q-1": [[0, "b"]]}]])
    verdict = check_cycles(script.history(), RunFacts(ww_edges=True))
    assert verdict.findings[0].detail == (
        "2 operations form a cycle: 2 -wr-> 3 -ww-> 2: 3 read 'b' of q-1, by 2; "
        "q-0 has 'c' of 3 at 0 and 'a' of 2 at 1"
    )
