"""Parses JSON values to typed Arrow columns, many values at once. Pure.

Each value is wrapped as `{"v":VALUE}` on a line of its own, and all lines are parsed by one call of
Arrow's reader. The wrapping keeps rows and values aligned: a value that is empty or has several
objects makes its line invalid or adds a row, which is detected. A second, slower pass isolates the
values that do not fit. Invariants: SameRowCount (one row for each value, in order), NoValueIsLost
(a value whose row lacks any part of it is in `bad_value`, except for fields that a given schema
leaves out).
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import json as arrow_json

Flags = NDArray[np.bool_]

HEAD, TAIL = pa.scalar(b'{"v":', pa.binary()), pa.scalar(b"}\n", pa.binary())
NOTHING = pa.scalar(b"", pa.binary())
BLOCK_MARGIN_BYTES = 16
DEPTH_MAX = 100
"""Maximum nesting of brackets in a JSON value. Arrow's reader is recursive, and its time grows with
the square of the depth: 500 levels take seconds."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class ParsedValues(NamedTuple):
    """Two Arrow columns with one row for each JSON value: the parsed values, and the bytes of the
    values that do not fit the struct type."""

    value: pa.StructArray
    bad_value: pa.BinaryArray
    """Bytes of the JSON values that do not fit the struct type of `value`. Null for all other
    values."""


class JsonValues:
    """Parser of JSON values into structs of one Arrow type."""

    def __init__(self, type_: pa.StructType, *, reports_unknown_fields: bool) -> None:
        self.type = type_
        """Arrow struct type of the parsed values in the column `value`."""
        self._unknown = "infer" if reports_unknown_fields else "ignore"

    def parse(self, values: pa.BinaryArray) -> ParsedValues:
        """Return JSON values as structs, and the bytes of values that do not fit the struct type. A
        null value is null in both columns."""
        if not len(values):
            return ParsedValues(pa.nulls(0, self.type), pa.nulls(0, pa.binary()))
        pieces = list(self._pieces(values, is_checked=False))
        parsed = pa.concat_arrays([one for one, _ in pieces])
        is_good = np.concatenate([good for _, good in pieces])
        assert len(parsed) == len(values)
        if is_good.all():
            return ParsedValues(parsed, pa.nulls(len(values), pa.binary()))
        return ParsedValues(
            parsed, pc.if_else(pa.array(is_good), pa.scalar(None, pa.binary()), values)
        )

    def _pieces(
        self, values: pa.BinaryArray, *, is_checked: bool
    ) -> Iterator[tuple[pa.Array, Flags]]:
        """Parse JSON values in consecutive pieces. Yields for each piece the Arrow structs of its
        values, and one flag per value: True if the value fits the struct type `self.type`.

        `is_checked` is True if the text of each value was checked before. The pieces are then
        halved until Arrow's reader accepts them or one value is left.
        """
        deep = None if is_checked else _too_deep(values)
        if deep is not None:
            values = pc.if_else(pa.array(deep), pa.scalar(b"x", pa.binary()), values)
        found = self._parsed(values)
        if found is not None:
            yield found
        elif len(values) == 1:
            yield pa.nulls(1, self.type), np.zeros(1, dtype=np.bool_)
        elif not is_checked:
            # Most values that do not fit are found by checking each text, in microseconds per
            # value.  A call of Arrow's reader takes half a millisecond.
            may_fit = np.array(
                [_is_fit_text(one, self.type) for one in values.to_pylist()], dtype=np.bool_
            )
            good = pc.if_else(pa.array(may_fit), values, pa.scalar(None, pa.binary()))
            for parsed, fits in self._pieces(good, is_checked=True):
                yield parsed, fits & may_fit[: len(fits)]
                may_fit = may_fit[len(fits) :]
        else:
            middle = len(values) // 2
            yield from self._pieces(values.slice(0, middle), is_checked=True)
            yield from self._pieces(values.slice(middle), is_checked=True)

    def _parsed(self, values: pa.BinaryArray) -> tuple[pa.Array, Flags] | None:
        """Return the Arrow structs of JSON values, and one flag per value: True if the value fits
        the struct type `self.type`. Returns None if Arrow's reader refuses at least one value."""
        column = read_values(values, self.type, self._unknown)
        if column is None:
            return None
        fitted, has_more = _fitted(column, self.type)
        is_good = ~(fitted.is_null().to_numpy(zero_copy_only=False))
        is_good |= values.is_null().to_numpy(zero_copy_only=False)
        if has_more is not None:
            is_good &= ~has_more
        return fitted, is_good


def read_values(
    values: pa.BinaryArray, type_: pa.StructType | None, unknown: str
) -> pa.Array | None:
    """Return an Arrow column of structs read from JSON values. Returns None if at least one value
    is neither one valid object nor null.

    Without a `type_`, Arrow infers the type. `unknown` is Arrow's behaviour for fields that `type_`
    lacks: ignore or infer.
    """
    lines = pc.binary_join_element_wise(
        HEAD, values, TAIL, NOTHING, null_handling="replace", null_replacement="null"
    )
    start, end = (int(one) for one in np.frombuffer(lines.buffers()[1], np.int32)[[0, len(lines)]])
    data = lines.buffers()[2].slice(start, end - start)
    schema = None if type_ is None else pa.schema([pa.field("v", type_)])
    try:
        table = arrow_json.read_json(
            pa.BufferReader(data),
            read_options=arrow_json.ReadOptions(
                use_threads=False, block_size=data.size + BLOCK_MARGIN_BYTES
            ),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior=unknown
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(values) or table.schema.names != ["v"]:
        return None
    column = table.column(0)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def inferred_type(samples: Sequence[pa.BinaryArray]) -> pa.StructType | None:
    """Return a struct type that most of the sampled JSON values fit, or None if the samples contain
    no object with a field.

    Texts that look like times remain texts, because the next text may not look like a time.
    """
    found: pa.DataType = pa.null()
    for values in samples:
        deep = _too_deep(values)
        if deep is not None:
            values = values.filter(pa.array(~deep))
        for one in _types_of(values):
            found = _merged(found, _plain(one))
    return found if pa.types.is_struct(found) and found.num_fields else None


def _types_of(values: pa.BinaryArray) -> Iterator[pa.DataType]:
    if not len(values):
        return
    read = read_values(values, None, "infer")
    if read is not None:
        yield read.type
    elif len(values) > 1:
        middle = len(values) // 2
        yield from _types_of(values.slice(0, middle))
        yield from _types_of(values.slice(middle))


def _merged(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return an Arrow type for values of both given types. If the types contradict each other,
    returns the first."""
    if pa.types.is_null(one) or one == other:
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _merged(fields.get(field.name, pa.null()), field.type)
        return pa.struct(list(fields.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _list_of(_merged(one.value_type, other.value_type))
    if pa.types.is_integer(one) and pa.types.is_floating(other):
        return other
    return one


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return an inferred Arrow type with strings instead of dates and times, and without the fields
    that were null in all samples."""
    if pa.types.is_struct(type_):
        fields = [(field.name, _plain(field.type)) for field in type_]
        kept = [(name, one) for name, one in fields if not pa.types.is_null(one)]
        return pa.struct(kept) if kept else pa.null()
    if pa.types.is_list(type_):
        element = _plain(type_.value_type)
        return pa.null() if pa.types.is_null(element) else _list_of(element)
    return pa.string() if pa.types.is_temporal(type_) else type_


def _list_of(type_: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", type_))


def _fitted(column: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Flags | None]:
    """Return an Arrow column with only the fields of `type_`, and a mask of the rows in which any
    other field is not null. The mask is None if the column has no other fields."""
    if column.type == type_:
        return column, None
    has_more: Flags | None = None
    if pa.types.is_struct(type_):
        known = {field.name for field in type_}
        children = []
        for field in type_:
            child, more = _fitted(column.field(field.name), field.type)
            children.append(child)
            has_more = _either(has_more, more)
        for index, field in enumerate(column.type):
            if field.name not in known:
                more = column.field(index).is_valid().to_numpy(zero_copy_only=False)
                has_more = _either(has_more, more)
        fitted = pa.StructArray.from_arrays(
            children, fields=list(type_), mask=column.is_null() if column.null_count else None
        )
        return fitted, has_more
    if pa.types.is_list(type_):
        elements, more = _fitted(column.values, type_.value_type)
        fitted = pa.ListArray.from_arrays(
            column.offsets,
            elements,
            type=type_,
            mask=column.is_null() if column.null_count else None,
        )
        if more is not None:
            has_more = np.zeros(len(column), dtype=np.bool_)
            parents = pc.list_parent_indices(column).to_numpy()
            has_more[parents[more[: len(parents)]]] = True
        return fitted, has_more
    return column.cast(type_), None


def _either(
    one: Flags | None,
    other: Flags | None,
) -> Flags | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _too_deep(values: pa.BinaryArray) -> Flags | None:
    """Return a mask of the JSON values that are nested deeper than `DEPTH_MAX`, or None if there
    are none of them."""
    sizes = pc.fill_null(pc.binary_length(values), 0)
    if (pc.max(sizes).as_py() or 0) <= DEPTH_MAX:
        return None
    openings = pc.add(pc.count_substring(values, b"{"), pc.count_substring(values, b"["))
    suspects = np.flatnonzero(pc.fill_null(openings, 0).to_numpy() > DEPTH_MAX)
    deep = np.zeros(len(values), dtype=np.bool_)
    for row in suspects.tolist():
        deep[row] = _depth(values[row].as_py()) > DEPTH_MAX
    return deep if deep.any() else None


def _depth(value: bytes) -> int:
    depth = deepest = 0
    for byte in _STRING.sub(b"", value).translate(None, _NOT_BRACKETS):
        depth += 1 if byte in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _is_fit_text(value: bytes | None, type_: pa.DataType) -> bool:
    """Return False if Arrow's reader certainly refuses a JSON value."""
    if value is None:
        return True
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return False
    return found is not None and _is_fit(found, type_)


def _is_fit(found: Any, type_: pa.DataType) -> bool:
    if found is None:
        return True
    if pa.types.is_struct(type_):
        return isinstance(found, dict) and all(
            _is_fit(found[field.name], field.type) for field in type_ if field.name in found
        )
    if pa.types.is_list(type_):
        return isinstance(found, list) and all(_is_fit(one, type_.value_type) for one in found)
    if pa.types.is_boolean(type_) or isinstance(found, bool):
        return pa.types.is_boolean(type_) and isinstance(found, bool)
    if pa.types.is_integer(type_):
        bound = 1 << (type_.bit_width - 1)
        return isinstance(found, int) and -bound <= found < bound
    if pa.types.is_floating(type_):
        return isinstance(found, int | float)
    return isinstance(found, str) or pa.types.is_decimal(type_)
