"""Texts that UTF-8 cannot encode: those with lone surrogates.

Pure.  Python's `str` may contain them: JSON escapes (`\\ud800`), command lines and file names bring
them in.  The rule: an entrance refuses such a text (`is_encodable`), and an exit whose reader is
not its writer, as `/metrics` is, never raises for one (`encodable`).
"""


def is_encodable(text: str) -> bool:
    """Return whether UTF-8 can encode a text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def encodable(text: str) -> str:
    """Return a text with `?` for what UTF-8 cannot encode, as Java's encoder has it."""
    return text if is_encodable(text) else text.encode(errors="replace").decode()
