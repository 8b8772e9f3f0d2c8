"""Text can be read on what lies below it, in the light and in the dark."""

import re

import pytest

from ottla.jepsen.report.theme import COLOURS

LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+):(#[0-9a-f]+)", part)) for part in COLOURS.split("@media")
)
TEXTS = {
    "ground": ("ink", "muted", "link", "good", "bad", "unsure", "ok", "info", "fail",
               "c0", "c1", "c2", "c3", "c5"),
    "panel": ("ink", "muted", "link", "ok", "info", "fail", "bad"),
    "good-ground": ("ink", "muted", "good"),
    "bad-ground": ("ink", "muted", "bad", "link"),
    "unsure-ground": ("ink", "muted", "unsure", "link"),
}  # fmt: skip


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("below", list(TEXTS))
def test_text_has_the_contrast_that_reading_needs(colours: dict[str, str], below: str) -> None:
    weak = {
        text: round(contrast(colours[text], colours[below]), 2)
        for text in TEXTS[below]
        if contrast(colours[text], colours[below]) < 4.5
    }
    assert not weak


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_marks_can_be_seen_on_the_plot(colours: dict[str, str]) -> None:
    marks = ("ok", "info", "fail", "mark", "fault", "c0", "c1", "c2", "c3", "c5")
    assert all(contrast(colours[mark], colours["panel"]) >= 3 for mark in marks)


def test_light_and_dark_have_the_same_colours() -> None:
    assert set(LIGHT) == set(DARK)
