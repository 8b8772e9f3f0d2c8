"""Rules of language that a program can check: words, openings of docstrings, names of classes.

`python -m tests.plain_english raft docs` prints the violations of folders, one a line.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUOTING = (Path(__file__), ROOT / "tests" / "test_plain_english.py")
"""This file and its test, which quote the words that the rules forbid."""

WORDS = (
    "amid", "anew", "begin of", "for ever", "foresaw", "no more", "nobody", "so many", "somebody",
    "told", "whoever",
)  # fmt: skip
"""Words that a reader has to decode, in text and in names; `no more than` is a plain bound."""
OPENINGS = frozenset(
    {"How", "Say", "Tell", "That", "What", "When", "Where", "Whether", "Who", "Whose"}
)
"""First words of docstrings that paraphrase a noun instead of naming it."""
PARTICIPLES_WITHOUT_ENDING = frozenset(
    """
    Begun Broken Brought Built Chosen Cut Dealt Done Drawn Driven Fallen Felt Found Given Gone Grown
    Heard Held Hidden Hung Kept Known Laid Left Lent Lost Made Meant Met Paid Put Read Reborn Risen
    Run Said Seen Sent Set Shown Shut Sold Spent Spoken Stood Stuck Taken Taught Thought Thrown Told
    Torn Woken Won Worn Woven Written
    """.split()  # noqa: SIM905 - a table of words
)
NOUNS = frozenset(
    """
    Bed Committed Embed Feed Finding Heading Hundred King Need Nothing Resigned Ring Seed Setting
    Shed Speed Standing String Thing Timing Unattached
    """.split()  # noqa: SIM905
)
"""Nouns that look like participles, Raft's roles, and `Committed`, a name that users import."""

_SPACE = r"[\s#*_-]+"
_WORD_PATTERNS = {
    word: re.compile(
        # `told_peers` and `told`, `PeersTold` and `Told`; never a part of another word.
        rf"(?:(?<![A-Za-z]){lower}|(?<![A-Z]){lower.capitalize()})(?![a-z])"
        + (rf"(?!{_SPACE}than)" if word == "no more" else "")
    )
    for word in WORDS
    for lower in (word.replace(" ", _SPACE),)
}
_LETTERS = {word: re.compile(word.replace(" ", _SPACE)) for word in WORDS}
_FIRST_WORD = re.compile(r"[A-Za-z]+")
_STRING_THAT_OPENS = re.compile(rf"[\"'][\s\\]*(?:{'|'.join(sorted(OPENINGS))})(?![A-Za-z])")
"""Beginning of a string, perhaps of a docstring, with a word of `OPENINGS`."""
_CLASS = re.compile(r"class\s+(\w+)")
_LONE_WORD = re.compile(r"_?([A-Z][a-z]+)")


def violations(path: Path) -> Iterator[str]:
    """Yield each violation in a file, as `path:line: rule`."""
    text = path.read_text()
    label = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    found = [*_words(text), *(_of_python(text) if path.suffix == ".py" else ())]
    for line, rule in sorted(set(found)):
        yield f"{label}:{line}: {rule}"


def plain_files(folder: Path) -> Iterator[Path]:
    """Yield the hand-written modules, pages and protocol files of a folder."""
    for suffix in ("md", "proto", "py"):
        for path in sorted(folder.rglob(f"*.{suffix}")):
            is_generated = "_pb2" in path.name or "messages" in path.parts
            if not is_generated and path not in QUOTING and ".venv" not in path.parts:
                yield path


def _words(text: str) -> Iterator[tuple[int, str]]:
    lowered = text.lower()
    for word, pattern in _WORD_PATTERNS.items():
        # Most files hold none of them: the letters alone are found ten times as fast.
        if _LETTERS[word].search(lowered) is None:
            continue
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, f"the word {word!r}"


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    # Most modules have neither such a string nor such a class: a search is ten times as fast as a
    # syntax tree.
    names = _CLASS.findall(text)
    if not (_STRING_THAT_OPENS.search(text) or any(map(_is_participle, names))):
        return
    tree = ast.parse(text)
    for line, docstring in _docstrings(tree):
        first = _FIRST_WORD.match(docstring.lstrip())
        if first and first[0] in OPENINGS:
            yield line, f"a docstring that opens with {first[0]!r}"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and _is_participle(node.name):
            yield node.lineno, f"a class named by the participle {node.name!r}"


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring, those below attributes included."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str() as text)):
                    yield statement.lineno, text


def _is_participle(name: str) -> bool:
    lone = _LONE_WORD.fullmatch(name)
    if lone is None or lone[1] in NOUNS:
        return False
    return lone[1].endswith(("ed", "ing")) or lone[1] in PARTICIPLES_WITHOUT_ENDING


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for file in plain_files(ROOT / name):
            for violation in violations(file):
                print(violation)
