from array import array
from xml.etree import ElementTree

from ottla.bench.faults.ledger import Answers, LedgerPartition, RunLedger
from ottla.bench.faults.timeline import Gap, Mark, as_svg, as_text, longest_gap, per_second


def run_of(*places: list[float]) -> RunLedger:
    answers = [
        Answers(
            LedgerPartition("load", index),
            numbers=array("L", range(len(at))),
            offsets=array("q", range(len(at))),
            at_s=array("d", at),
        )
        for index, at in enumerate(places)
    ]
    return RunLedger(run_id=1, started_s=100.0, answers=answers)


def test_records_are_counted_in_the_second_of_their_acknowledgement() -> None:
    assert per_second(run_of([100.0, 100.9, 103.0], [102.5])) == [[2, 0, 0, 1], [0, 0, 1, 0]]


def test_the_longest_gap_is_looked_for_where_it_touches_a_stretch_of_time() -> None:
    answers = run_of([100.0, 103.0, 103.5, 105.5]).answers[0]
    assert longest_gap(answers) == Gap(3.0, 100.0)
    assert longest_gap(answers, 103.2, 103.4) == Gap(0.5, 103.0)
    assert longest_gap(answers, 104.0) == Gap(2.0, 103.5)
    assert longest_gap(answers, 110.0).seconds == 0.0


def test_a_second_without_a_record_stands_out_in_the_text() -> None:
    lines = as_text(run_of([100.0, 100.1, 102.0]), [Mark(101.5, "kill broker 1")]).splitlines()
    assert lines[0] == "load-0 ▅·▃  longest gap   1.90 s"
    assert lines[1] == "        ^ 1 s: kill broker 1"


def test_what_comes_at_once_after_a_stop_does_not_make_the_usual_look_small() -> None:
    usual = [100.0 + 0.25 * number for number in range(12)]
    caught_up = [104.0 + 0.001 * number for number in range(900)]
    assert as_text(run_of([*usual, *caught_up])).startswith("load-0 ▅▅▅·█ ")


def test_the_picture_is_well_formed_and_names_what_was_done() -> None:
    drawn = as_svg(run_of([100.0, 102.0]), [Mark(101.5, "kill <broker> & wait")], title="a & b")
    texts = [node.text for node in ElementTree.fromstring(drawn).iter() if node.text]
    assert "kill <broker> & wait" in texts
    assert "a & b" in texts
    assert sum("longest gap" in text for text in texts) == 1
