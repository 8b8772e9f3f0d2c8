"""Whatever is shown stays text: no value of a client, a server or a fault becomes markup."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from ottla.jepsen.report.markup import FORBIDDEN, Markup, element, escape, joined


@given(st.text(), st.text())
def test_any_text_survives_as_content_and_as_attribute(content: str, attribute: str) -> None:
    made = element("p", content, title=attribute)
    read = ElementTree.fromstring(made)
    assert set(read.keys()) == {"title"}
    assert len(read) == 0
    kept = FORBIDDEN.sub("\ufffd", content)
    # A reader of XML takes every kind of line end for a line feed.
    assert (read.text or "") == kept.replace("\r\n", "\n").replace("\r", "\n")


def test_what_would_be_markup_is_escaped() -> None:
    made = element("p", "<script>alert(1)</script>", title='"><b>')
    assert "<script" not in made
    assert "<b>" not in made
    assert ElementTree.fromstring(made).text == "<script>alert(1)</script>"
    assert ElementTree.fromstring(made).get("title") == '"><b>'


def test_what_xml_forbids_is_shown_as_a_replacement_character() -> None:
    assert escape("a\x00b\x1b[0m") == "a\ufffdb\ufffd[0m"
    assert escape("\ud800") == "\ufffd"


def test_markup_in_markup_is_not_escaped_twice() -> None:
    assert element("p", element("b", "1 < 2")) == "<p><b>1 &lt; 2</b></p>"
    assert joined([Markup("<br/>"), "<br/>"]) == "<br/>&lt;br/&gt;"


def test_only_void_elements_are_closed_in_themselves() -> None:
    assert element("span", class_="x") == '<span class="x"></span>'
    assert element("meta", http_equiv="x", name=None, id=1) == '<meta http-equiv="x" id="1"/>'
