from ottla.model.errors import REFUSAL_CHARS_MAX, ErrorCode, RefusedError


def test_a_refusals_sentence_is_bounded_whatever_a_stranger_brings_into_it() -> None:
    name = "x" * 32_700
    refusal = RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the topic '{name}' is too long")
    assert len(refusal.message) <= REFUSAL_CHARS_MAX
    assert refusal.message.startswith("the topic 'xxx")
    assert refusal.message.endswith("xxx' is too long")


def test_a_short_sentence_stays_as_it_is() -> None:
    assert RefusedError(ErrorCode.INVALID_REQUEST, "no").message == "no"
