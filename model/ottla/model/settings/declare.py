"""Declarations of settings. Each setting is a dataclass field, with its Kafka key, type, bounds and
description.

Texts of settings are parsed only in this module. An invalid value therefore leads to the same error
in a file, on the command line and in AlterConfigs. The error contains the key, the value, and the
allowed values.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import IntEnum
from functools import cache
from typing import Any, TypeVar, cast

from ottla.model.errors import ConfigError
from ottla.model.unicode_text import are_encodable, is_encodable
from ottla.model.values import frozen

C = TypeVar("C")


class SettingKind(IntEnum):
    """Types of settings, with the numbers of Kafka's config types in DescribeConfigs v3."""

    UNKNOWN = 0
    """Type of a key for which there is no declaration."""
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOUNDS = {
    SettingKind.SHORT: (-(1 << 15), (1 << 15) - 1),
    SettingKind.INT: (-(1 << 31), (1 << 31) - 1),
    SettingKind.LONG: (-(1 << 63), (1 << 63) - 1),
}


BLANKS = "".join(map(chr, range(ord(" ") + 1)))
"""Characters that Java's String.trim removes: all up to and including the space."""
_WHOLE_NUMBER = re.compile(r"[+-]?\d+")
_FRACTION = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|Infinity)", re.ASCII)


@frozen(kw_only=True)
class Definition:
    """Declaration of one setting. `default` is the default value as text, or None if the setting
    has no default."""

    key: str
    field_name: str
    kind: SettingKind
    default: str | None
    doc: str
    at_least: float | None = None
    at_most: float | None = None
    one_of: tuple[str, ...] = ()
    none_of: tuple[int, ...] = ()
    """Forbidden numbers within the bounds of the setting."""
    is_blank_allowed: bool = True
    """True if a list may be empty, or a text may consist of blanks."""
    parse: Callable[[str], Any] | None = None
    broker_keys: tuple[str, ...] = ()
    """Broker keys that supply the default of a topic setting. The first key that is set applies.
    For a setting of a single listener, this is the key without the listener's prefix."""
    is_dynamic: bool = False
    """True if a running broker applies a changed value. Always True for topic settings."""
    has_no_effect_yet: str = ""
    """Reason why the setting is accepted but has no effect yet, or an empty text if it has an
    effect."""
    no_effect_values: tuple[str, ...] = ()
    """Values of the setting that have no effect, unlike its other values."""
    is_internal: bool = False
    """True if DescribeConfigs and the documentation omit the setting."""

    @property
    def documentation(self) -> str:
        """Description of the setting for users, with a remark if the setting has no effect yet."""
        if not self.has_no_effect_yet:
            return self.doc
        subject = f"The value {' or '.join(self.no_effect_values)}" if self.no_effect_values else ""
        return f"{self.doc} {subject or 'It'} has no effect yet: {self.has_no_effect_yet}."

    @property
    def full_name(self) -> str:
        """Name of the config field, followed by the Kafka key in parentheses if that differs."""
        return self.key if self.field_name == self.key else f"{self.field_name} ({self.key})"

    def missing_effect(self, text: str) -> str | None:
        """Return the reason why the setting has no effect if set to `text`, or None if it has an
        effect."""
        values = {part.strip() for part in text.split(",")}
        if self.no_effect_values and values.isdisjoint(self.no_effect_values):
            return None
        return self.has_no_effect_yet or None

    def value_of(self, text: str) -> Any:
        """Parse the text of the setting and return the value. Raises ConfigError, which names the
        allowed values, if the text is invalid."""
        given = "not readable" if self.kind is SettingKind.PASSWORD else repr(text)
        try:
            value = self._parsed(text.strip(BLANKS))
        except ValueError:
            raise ConfigError(self.key, f"is {given}; it must be {self.allowed()}") from None
        if not self._is_within_bounds(value):
            raise ConfigError(self.key, f"is {given}; it must be {self.allowed()}")
        return value

    def allowed(self) -> str:
        """Return a description of the allowed values for error messages, such as "an integer of at
        least 1"."""
        if self.one_of and self.kind is SettingKind.LIST:
            return f"a list of any of {', '.join(self.one_of)}"
        if self.one_of:
            return f"one of {', '.join(self.one_of)}"
        noun = {
            SettingKind.BOOLEAN: "true or false",
            SettingKind.INT: "an integer",
            SettingKind.SHORT: "an integer",
            SettingKind.LONG: "an integer",
            SettingKind.DOUBLE: "a number",
            SettingKind.LIST: "a comma-separated list",
        }.get(self.kind, "a text")
        if self.parse is not None:
            noun = noun_of(self.parse) or noun
        if self.at_least is not None:
            noun += (
                f" of at least {self.at_least:g}"
                if self.at_least % 1
                else (f" of at least {int(self.at_least)}")
            )
        if self.at_most is not None:
            noun += f" and at most {self.at_most:g}"
        if self.none_of:
            noun += f", but not {' or '.join(map(str, self.none_of))}"
        return noun

    def accepts(self, value: Any) -> bool:
        """Return whether a parsed value (not a text) is allowed for this setting."""
        if self.parse is not None:
            return not isinstance(value, str) or self._is_text_of(self.parse, value)
        match self.kind:
            case SettingKind.BOOLEAN:
                return isinstance(value, bool)
            case SettingKind.INT | SettingKind.SHORT | SettingKind.LONG:
                is_fit = isinstance(value, int) and not isinstance(value, bool)
            case SettingKind.DOUBLE:
                is_fit = isinstance(value, int | float) and not isinstance(value, bool)
            case SettingKind.LIST:
                is_fit = isinstance(value, tuple) and all(isinstance(one, str) for one in value)
            case _:
                is_fit = isinstance(value, str)
        return is_fit and self._is_within_bounds(value)

    @staticmethod
    def _is_text_of(parse: Callable[[str], Any], value: str) -> bool:
        """Return whether a parsed text is a valid value: the setting's parser accepts it and
        returns a text."""
        try:
            return isinstance(parse(value), str)
        except (ValueError, ConfigError):
            return False

    def _parsed(self, text: str) -> Any:
        if self.parse is not None:
            return self.parse(text)
        match self.kind:
            case SettingKind.BOOLEAN:
                return {"true": True, "false": False}.get(text.lower())
            case SettingKind.INT | SettingKind.SHORT | SettingKind.LONG:
                return whole_number(text)
            case SettingKind.DOUBLE:
                return fraction(text)
            case SettingKind.LIST:
                return items(text)
            case _:
                return text

    def _is_within_bounds(self, value: Any) -> bool:
        if value is None or (not self.is_blank_allowed and value in ("", ())):
            return False
        if self.one_of:
            values = value if isinstance(value, tuple) else (value,)
            return all(item in self.one_of for item in values)
        if isinstance(value, int | float) and not isinstance(value, bool):
            lowest, highest = BOUNDS.get(self.kind, (float("-inf"), float("inf")))
            at_least = lowest if self.at_least is None else max(lowest, self.at_least)
            at_most = highest if self.at_most is None else min(highest, self.at_most)
            return at_least <= value <= at_most and value not in self.none_of
        return True


def noun_of(parse: Callable[[str], Any]) -> str:
    """Return the description of a parser's valid texts for error messages, such as "a list of
    host:port": the first line of the parser's docstring. Returns the empty text if it has none."""
    return (parse.__doc__ or "").partition("\n")[0].removesuffix(".")


def whole_number(text: str) -> int:
    """Return the integer that a text contains. Raises ValueError if Kafka would not accept the
    notation.

    Python's `int` also accepts `1_000`, and surrounding blanks that Java does not remove.
    """
    if _WHOLE_NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def fraction(text: str) -> float:
    """Return the decimal number that a text contains. Raises ValueError if the text is not a
    number.

    Unlike Python's `float`, this function refuses `1_0` and `inf`. It also refuses Java's type
    suffixes and hexadecimal numbers.
    """
    if _FRACTION.fullmatch(text) is None:
        raise ValueError(text)
    return float(text)


def items(text: str) -> tuple[str, ...]:
    """Return the items of a comma-separated list.  Raises ValueError if an item is empty."""
    parts = tuple(part.strip(BLANKS) for part in text.split(",")) if text else ()
    if "" in parts:
        raise ValueError(text)
    return parts


def setting(
    default: Any,
    *,
    key: str,
    kind: SettingKind | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    one_of: tuple[str, ...] = (),
    none_of: tuple[int, ...] = (),
    is_blank_allowed: bool = True,
    parse: Callable[[str], Any] | None = None,
    text: str | None = None,
    is_null_by_default: bool = False,
    broker_keys: tuple[str, ...] = (),
    is_dynamic: bool = False,
    has_no_effect_yet: str = "",
    no_effect_values: tuple[str, ...] = (),
    is_internal: bool = False,
    doc: str,
) -> Any:
    """Declare one setting as a dataclass field.

    `default` is the default value, and `text` is its notation if that differs from `str(default)`.
    `is_null_by_default` is True if the default cannot be written as text. If `kind` is not given,
    it follows from the type of the default: an int is INT.
    """
    if kind is None:
        kind = _kind_of(default)
    given = _text_of(default) if text is None else text
    if is_null_by_default:
        given = None
    parts = {
        "key": key,
        "kind": kind,
        "default": given,
        "doc": doc,
        "at_least": at_least,
        "at_most": at_most,
        "one_of": one_of,
        "none_of": none_of,
        "is_blank_allowed": is_blank_allowed,
        "parse": parse,
        "broker_keys": broker_keys,
        "is_dynamic": is_dynamic,
        "has_no_effect_yet": has_no_effect_yet,
        "no_effect_values": no_effect_values,
        "is_internal": is_internal,
    }
    # A password is not shown in the representation of its config.
    shown = kind is not SettingKind.PASSWORD
    return field(default=default, repr=shown, metadata={"setting": parts})


def _kind_of(default: Any) -> SettingKind:
    if isinstance(default, bool):
        return SettingKind.BOOLEAN
    if isinstance(default, int):
        return SettingKind.INT
    if isinstance(default, float):
        return SettingKind.DOUBLE
    return SettingKind.LIST if isinstance(default, tuple) else SettingKind.STRING


def _text_of(default: Any) -> str | None:
    if default is None:
        return None
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, tuple):
        return ",".join(str(item) for item in default)
    # Java writes 1.0E308, Python 1.0e+308.
    return str(default).replace("e+", "E") if isinstance(default, float) else str(default)


@cache
def definitions(config: type) -> Mapping[str, Definition]:
    """Return the declarations of all settings of a config class by Kafka key, in the order of the
    fields."""
    return {
        part.metadata["setting"]["key"]: Definition(
            field_name=part.name, **part.metadata["setting"]
        )
        for part in dataclasses.fields(config)
        if "setting" in part.metadata
    }


def settings_without_effect(
    known: Mapping[str, Definition], texts: Mapping[str, str]
) -> dict[str, str]:
    """Return the keys in `texts` whose settings are accepted but have no effect yet, each with the
    reason."""
    return {
        key: reason
        for key, text in texts.items()
        if key in known and (reason := known[key].missing_effect(text)) is not None
    }


def allowed_texts(
    known: Mapping[str, Definition], texts: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, ConfigError]]:
    """Return the valid texts by key, and the errors of the invalid texts by key.

    Texts of unknown keys are ignored. A stored text may be invalid because a release with other
    bounds has stored it.
    """
    found: dict[str, str] = {}
    errors: dict[str, ConfigError] = {}
    for key, text in texts.items():
        if key in known:
            try:
                known[key].value_of(text)
                found[key] = text
            except ConfigError as error:
                errors[key] = error
    return found, errors


def check_fields(config: Any) -> None:
    """Check the values of a config object that a program created by field names, not from texts.

    Raises ConfigError, which names the field and the key, for a value that its setting does not
    allow.
    """
    check_texts(config)
    for definition in definitions(cast("type", type(config))).values():
        value = getattr(config, definition.field_name)
        if value is None and definition.default is None:
            continue
        if not definition.accepts(value):
            given = "not allowed" if definition.kind is SettingKind.PASSWORD else repr(value)
            raise ConfigError(
                definition.full_name, f"is {given}; it must be {definition.allowed()}"
            )


def check_texts(config: Any) -> None:
    """Raise ConfigError, which names the field and the key, if a text in a config object is not
    valid Unicode."""
    for definition in definitions(cast("type", type(config))).values():
        if not are_encodable(getattr(config, definition.field_name)):
            raise ConfigError(definition.full_name, "has characters that UTF-8 cannot encode")


def values_of(config: type, texts: Mapping[str, str]) -> tuple[dict[str, Any], set[str]]:
    """Parse `texts`, which are given by Kafka key. Returns the values by field name, and the keys
    that the class `config` does not have.

    Raises ConfigError for a value that is invalid or not valid Unicode.
    """
    known = definitions(config)
    for key, text in texts.items():
        if key in known and not is_encodable(text):
            raise ConfigError(key, "has characters that are no Unicode text; write it in UTF-8")
    values = {
        known[key].field_name: known[key].value_of(text)
        for key, text in texts.items()
        if key in known
    }
    return values, set(texts) - set(known)


def load(config: type[C], texts: Mapping[str, str]) -> tuple[C, set[str]]:
    """Create a config object from texts by Kafka key. Returns the object and the keys that its
    class does not have."""
    values, unknown = values_of(config, texts)
    return cast("Any", config)(**values), unknown
