"""A response has messages for its first refusals only, however many a stranger causes."""

from ottla.model.explanations import EXPLAINED_MAX, Explanations


def test_the_first_refusals_of_an_answer_have_a_message_and_the_others_none() -> None:
    explanations = Explanations()
    messages = [explanations.of("no such partition") for _ in range(EXPLAINED_MAX + 2)]
    assert messages[:EXPLAINED_MAX] == ["no such partition"] * EXPLAINED_MAX
    assert messages[EXPLAINED_MAX:] == [None, None]


def test_what_is_not_refused_takes_no_room() -> None:
    explanations = Explanations()
    for _ in range(EXPLAINED_MAX):
        assert explanations.of(None) is None
    assert explanations.of("no such partition") == "no such partition"
