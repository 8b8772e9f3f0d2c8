"""Work that is done once at the end of an event-loop turn."""

from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.turn_end import TurnEnd


def test_work_that_is_asked_for_twice_in_a_turn_is_done_once_at_its_end() -> None:
    done: list[str] = []

    def write() -> None:
        done.append("written")

    end = TurnEnd()
    end.begin()
    assert end.call(write)
    assert end.call(write)
    assert not done
    end.end(UnexpectedErrors())
    assert done == ["written"]
    end.begin()
    end.end(UnexpectedErrors())
    assert done == ["written"]


def test_outside_a_turn_and_at_its_end_nothing_is_taken_on() -> None:
    end = TurnEnd()
    answers = [end.call(print)]
    end.begin()
    end.call(lambda: answers.append(end.call(print)))
    end.end(UnexpectedErrors())
    assert answers == [False, False]


def test_an_error_of_one_piece_of_work_is_noted_and_the_others_are_done() -> None:
    errors = UnexpectedErrors()
    done: list[str] = []

    def fail() -> None:
        raise ValueError("a bug")

    end = TurnEnd()
    end.begin()
    end.call(fail)
    end.call(lambda: done.append("done"))
    end.end(errors)
    assert done == ["done"]
    assert errors.counts["turn"] == 1
