"""Layout of tables: no line is too wide, and nothing is lost."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.model.text_tables import TABLE_WIDTH, broken, lay_out

CELL = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Zs"]), max_size=300)


def test_a_narrow_table_is_aligned_and_kept_whole() -> None:
    found = lay_out(("NAME", "LAG"), [("a", "1"), ("long name", "22")], (False, True))

    assert found.header == ["NAME       LAG"]
    assert found.rows == ["a            1", "long name   22"]


def test_the_widest_column_continues_on_the_next_line() -> None:
    reason = "the segment is damaged; run 'topic trim' on it"
    headers, row = ("TOPIC", "DIRTY-BYTES", "REASON"), ("orders", "7", reason)
    found = lay_out(headers, [row], (False, True, False), width=48)

    assert found.header == ["TOPIC   DIRTY-BYTES  REASON"]
    assert found.rows == [
        "orders            7  the segment is damaged; run",
        "                     'topic trim' on it",
    ]


def test_numbers_stay_whole_while_texts_can_be_narrowed() -> None:
    found = lay_out(("TOPIC", "END"), [("x" * 249, str(2**63 - 1))], (False, True), width=40)

    assert found.rows[0].endswith(str(2**63 - 1))
    assert max(map(len, found.rows)) == 40


def test_identifiers_stay_whole_so_that_they_can_be_copied() -> None:
    row = ("x" * 22, "confluent-kafka-python 2.16.1-rdkafka-2.16.0")
    found = lay_out(
        ("CLIENT", "SOFTWARE"), [row], (False, False), is_identifier=(True, False), width=32
    )

    assert found.rows[0].split()[0] == row[0]


def test_a_header_is_broken_after_its_hyphens() -> None:
    found = lay_out(("COORDINATOR-EPOCH", "PRODUCER-ID"), [("1", "2")], (True, True), width=26)

    assert found.header == [" COORDINATOR-  PRODUCER-ID", "        EPOCH"]
    assert found.rows == ["            1            2"]


def test_a_header_is_broken_within_a_word_only_where_no_part_fits() -> None:
    headers = ("LAST-SEQUENCE", "TRANSACTION-FIRST-OFFSET")
    found = lay_out(headers, [("1", "2")], (True, True), width=24)

    assert found.header == [
        "     LAST-  TRANSACTION-",
        "  SEQUENCE  FIRST-OFFSET",
    ]


@given(
    rows=st.integers(1, 9).flatmap(
        lambda count: st.lists(
            st.lists(CELL, min_size=count, max_size=count), min_size=1, max_size=4
        )
    ),
    width=st.integers(40, 200),
)
def test_no_line_is_wider_than_allowed(rows: list[list[str]], width: int) -> None:
    headers = [f"COLUMN-{at}" for at in range(len(rows[0]))]
    found = lay_out(headers, rows, [False] * len(headers), width=width)

    assert max(map(len, [*found.header, *found.rows])) <= max(width, TABLE_WIDTH)


def test_a_narrow_terminal_breaks_no_numbers_and_no_words_of_headers() -> None:
    headers = [f"{letter * 9}S" for letter in "ABCDEFGH"]
    found = lay_out(headers, [["123456789"] * 8], [True] * 8, width=60)

    assert found.header == ["  ".join(headers)]


@given(text=CELL, width=st.integers(1, 60))
def test_a_broken_text_loses_only_spaces(text: str, width: int) -> None:
    parts = broken(text, width)

    assert max(map(len, parts)) <= width
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")
