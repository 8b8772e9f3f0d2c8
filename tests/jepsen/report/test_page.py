"""Text can be read on its background, in light and dark; pages run and load nothing."""

import pytest

from ottla.jepsen.report.page import DARK, LIGHT, page_text, table

TEXTS = {
    "ground": ("ink", "muted", "link", "good", "bad", "unsure", "ok", "info", "fail", "c4"),
    "panel": ("ink", "muted", "link", "ok", "info", "fail", "bad"),
    "good-ground": ("ink", "muted", "good"),
    "bad-ground": ("ink", "muted", "bad", "link"),
    "unsure-ground": ("ink", "muted", "unsure", "link"),
}


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_marks_stand_out_from_their_background(colours: dict[str, str]) -> None:
    weak = {
        (text, below)
        for below, texts in TEXTS.items()
        for text in texts
        if contrast(colours[text], colours[below]) < 4.5
    }
    assert not weak
    marks = ("ok", "info", "fail", "bad", "c1", "c2", "c3", "c4", "c5", "rest")
    assert all(contrast(colours[mark], colours["panel"]) >= 3 for mark in marks)


def test_light_and_dark_have_the_same_colours_each_a_single_time() -> None:
    assert set(LIGHT) == set(DARK)
    assert len(set(LIGHT.values())) == len(LIGHT), "a colour of a picture has one variable"


def test_a_page_forbids_scripts_and_everything_from_elsewhere() -> None:
    page = page_text("t", table(("a",), [("<script>",)]))
    assert "default-src 'none'" in page
    assert "<script" not in page
