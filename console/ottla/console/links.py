"""Builds and parses the addresses of pages, whose path segments may be any value. Pure.

Ids of groups may contain slashes, or be `..`, which browsers would resolve. A slash is therefore
sent as `%2F`, and the undecoded path is matched. A value that is empty, consists of dots or begins
with `~` gets the prefix `~`.
"""

from collections.abc import Mapping
from urllib.parse import quote, unquote, urlencode

from ottla.model.values import frozen

ESCAPE = "~"
PATH_CHARS_MAX = 131_072
"""Maximum length of an address's path in bytes. A group id of 32,767 characters that all need
escapes would be longer, but servers refuse a request line of this length."""


def segment_of(value: str) -> str:
    """Return a value, such as a group id, as a segment of an address's path."""
    if not value.strip(".") or value.startswith(ESCAPE):
        value = ESCAPE + value
    return quote(value, safe="", errors="surrogatepass")


def value_of(segment: str) -> str | None:
    """Return the value in a segment of an address's path, or None if the segment is not UTF-8."""
    try:
        return unquote(segment, errors="strict").removeprefix(ESCAPE)
    except UnicodeDecodeError:
        return None


def address(path: str, values: Mapping[str, str], query: Mapping[str, object] = {}) -> str:
    """Return the address of a page. `path` is the page's path with parameters, such as
    `/topics/{topic}`, and `values` has their values. Raises KeyError if a value is missing. Query
    parameters that are None or empty are omitted."""
    parts = [
        segment_of(values[part[1:-1]]) if part.startswith("{") else part for part in path.split("/")
    ]
    pairs = [(name, str(one)) for name, one in query.items() if one is not None and one != ""]
    end = f"?{urlencode(pairs, errors='surrogatepass')}" if pairs else ""
    return "/".join(parts) + end


@frozen
class PathPattern:
    """Path of pages with parameters in braces, which is matched against undecoded paths."""

    parts: tuple[str, ...]

    @classmethod
    def of(cls, path: str) -> "PathPattern":
        """Return the pattern of a page's path such as `/topics/{topic}`."""
        return cls(tuple(path.split("/")))

    def match(self, raw_path: str) -> dict[str, str] | None:
        """Return the values of the path's parameters, or None if the path does not match."""
        segments = raw_path.split("/", len(self.parts))
        if len(segments) != len(self.parts):
            return None
        values: dict[str, str] = {}
        for part, segment in zip(self.parts, segments, strict=True):
            if not part.startswith("{"):
                if part != segment:
                    return None
                continue
            value = value_of(segment) if segment else None
            if value is None:
                return None
            values[part[1:-1]] = value
        return values
