"""Writer of the source of one decode function for one message and version.

The function is `decode(data, p, end, left, view) -> (message, p)`, where `p` is the position. A
series of fixed-size fields, with the length byte of the field after them, is read by one
`unpack_from`. Structs are inlined, and the elements of all arrays together may use `left` bytes of
memory. `data` is the whole `view`, or a copy of it as bytes if it is small, because each access to
bytes takes half as long. Records are always slices of the view.

The function may raise IndexError, `struct.error` and UnicodeDecodeError for bytes that end too
early or are not text; `codec.decode` converts those to ProtocolError. Before an array is created,
its count is checked against the remaining bytes, using the smallest encoding of one element.
"""

from ottla.model.limits import KIB
from ottla.wire.codec_writers.codec_source import (
    FunctionSource,
    default_text,
    element_cost,
    smallest_bytes,
)
from ottla.wire.schema import SCALARS, Field, MessageSchema, StructSchema

COST_FREE_BYTES = 512 * KIB
COST_PER_BYTE = 12
"""Maximum memory, in bytes per encoded byte of a message, that the elements of its arrays may use
once decoded.

As Python objects the smallest structs use fifty times their encoded size. Without this bound, a
frame of 100 MiB could use 5 GB. Regular messages stay far below the bound: a partition uses at most
eight times its size. Messages up to 64 KiB stay below four times their size plus 1 MiB.
"""

WORD_BYTES = 4
"""Minimum encoded size in bytes of a number whose memory in a decoded array is not counted. A list
of such numbers uses only twice their encoded size."""


def decoder_source(
    schema: MessageSchema, version: int, *, is_small: bool = False
) -> FunctionSource:
    """Return the source of the decode function for one version of a message, with the names that
    the source needs.

    The function for small messages reads bytes; the function for other messages reads a view.
    """
    writer = _Decoder(schema, version)
    writer.is_small = is_small
    writer.line("def decode(data, p, end, left, view):")
    writer.depth += 1
    root = writer.struct(schema.root, schema.root.name)
    writer.flush()
    writer.line(f"return {root}, p")
    return writer


class _Decoder(FunctionSource):
    """Writer of a decode function's source text, with the queue of fixed-size reads for which no
    code is generated yet."""

    is_small = False
    """True if the generated function reads `data` as bytes, False if as a memoryview."""

    def read(self, code: str, target: str) -> None:
        """Plan to read a fixed-size value into the variable `target`. No code is generated yet:
        `flush` generates one read for all planned values."""
        self.pending.append((code, target))

    def flush(self) -> None:
        """Generate the code that reads all queued fixed-size values at once, followed by the lines
        that depend on these values."""
        codes = "".join(code for code, _ in self.pending)
        if codes == "B":
            self.line(f"{self.pending[0][1]} = data[p]")
            self.line("p += 1")
        elif codes:
            targets = ", ".join(target for _, target in self.pending)
            unpack, size = self.packer("unpack_from", codes)
            self.line(f"{targets}{',' if len(self.pending) == 1 else ''} = {unpack}(data, p)")
            self.line(f"p += {size}")
        self.pending.clear()
        for line in self.waiting:
            self.line(line)
        self.waiting.clear()

    def struct(self, struct: StructSchema, where: str) -> str:
        """Generate the code that reads a struct into a new variable. Returns the name of the
        variable."""
        variable = self.variable("o")
        self.line(f"{variable} = new({struct.name})")
        tagged = []
        for field in struct.fields:
            target = f"{variable}.{field.name}"
            if self.version in field.versions and field.tag is None:
                self.field(field, target, f"{where}.{field.name}")
                continue
            self.line(f"{target} = {default_text(field)}")
            if self.version in field.versions:
                tagged.append(field)
        if self.is_flexible:
            self.tags(tagged, variable, where)
        return variable

    def tags(self, tagged: list[Field], variable: str, where: str) -> None:
        """Generate the code that reads the tagged fields of this message version, and skips all
        other tags."""
        count = self.variable("t")
        self.read("B", count)
        self.flush()
        self.line(f"if {count}:")
        self.depth += 1
        if not tagged:
            self.line(f"p = skip_tags(data, p, {count}, end)")
            self.depth -= 1
            return
        tag, stop = self.variable("tag"), self.variable("stop")
        self.line(f"if {count} > 127: {count}, p = more_uvarint(data, p, {count})")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        self.line(f"{tag}, p = read_uvarint(data, p)")
        self.line(f"{stop}, p = read_uvarint(data, p)")
        self.line(f"{stop} += p")
        self.line(f'if {stop} > end: raise too_long("{where}: tagged field")')
        for field in tagged:
            path = f"{where}.{field.name}"
            self.line(f"if {tag} == {field.tag}:")
            self.depth += 1
            self.field(field, f"{variable}.{field.name}", path)
            self.flush()
            self.line(f'if p != {stop}: raise wrong_size("{path}")')
            self.depth -= 1
        self.line(f"p = {stop}")
        self.depth -= 2

    def field(self, field: Field, target: str, where: str) -> None:
        """Generate the code that reads one field of this message version into `target`."""
        is_nullable = self.version in field.nullable
        if field.is_array:
            self.array(field, target, where, is_nullable=is_nullable)
        elif field.struct is not None:
            self.single_struct(field.struct, target, where, is_nullable=is_nullable)
        elif field.type in SCALARS:
            self.scalar(field.type, target)
        else:
            self.sized(field.type, target, where, is_nullable=is_nullable)

    def scalar(self, type_name: str, target: str) -> None:
        """Generate the code that reads a fixed-size field into `target`."""
        if type_name != "uuid":
            self.read(SCALARS[type_name], target)
            return
        raw = self.variable("u")
        self.read("16s", raw)
        self.waiting.append(f"{target} = find_uuid({raw}) or keep_uuid({raw})")

    def single_struct(
        self, struct: StructSchema, target: str, where: str, *, is_nullable: bool
    ) -> None:
        """Generate the code that reads a struct outside an array into `target`. A nullable struct
        is preceded by a sign byte."""
        if not is_nullable:
            self.line(f"{target} = {self.struct(struct, where)}")
            return
        sign = self.variable("n")
        self.read("b", sign)
        self.flush()
        self.line(f"if {sign} < 0:")
        self.line(f"    {target} = None")
        self.line("else:")
        self.depth += 1
        variable = self.struct(struct, where)
        self.flush()
        self.line(f"{target} = {variable}")
        self.depth -= 1

    def length(self, kind: str, where: str, target: str, *, is_nullable: bool) -> str:
        """Generate the code that reads a length or count, and open the branch for a value that is
        not null. Returns the variable with the length."""
        size = self.variable("n")
        if self.is_compact(kind):
            self.read("B", size)
            self.flush()
            self.line(f"if {size} > 127: {size}, p = more_uvarint(data, p, {size})")
            self.line(f"if not {size}:")
        else:
            self.read("h" if kind.startswith("string") else "i", size)
            self.flush()
            self.line(f"if {size} < 0:")
        self.line(f"    {target} = None" if is_nullable else f'    raise is_null("{where}")')
        self.line("else:")
        self.depth += 1
        if self.is_compact(kind):
            self.line(f"{size} -= 1")
        return size

    def sized(self, kind: str, target: str, where: str, *, is_nullable: bool) -> None:
        """Generate the code that reads text, bytes (a copy) or records (a view of the frame) into
        `target`."""
        size = self.length(kind, where, target, is_nullable=is_nullable)
        stop = self.variable("e")
        self.line(f"{stop} = p + {size}")
        self.line(f'if {stop} > end: raise too_long("{where}")')
        part = f"data[p:{stop}]"
        if kind == "records":
            value = f"view[p:{stop}]"
        elif kind == "bytes":
            value = part if self.is_small else f"bytes({part})"
        else:
            value = f"{part}.decode()" if self.is_small else f'str({part}, "utf-8")'
        self.line(f"{target} = {value}")
        self.line(f"p = {stop}")
        self.depth -= 1

    def array(self, field: Field, target: str, where: str, *, is_nullable: bool) -> None:
        """Generate the code that checks an array's count against the remaining bytes, and then
        reads the array into `target`."""
        count = self.length("array", where, target, is_nullable=is_nullable)
        smallest = smallest_bytes(field, self.schema, self.version)
        code = None if field.type == "uuid" else SCALARS.get(field.type)
        is_counted = code is None or smallest < WORD_BYTES
        cost = element_cost(field, self.version)
        bound = f" or {count} * {cost} > left" if is_counted else ""
        self.line(f'if {count} * {smallest} > end - p{bound}: raise too_long("{where}")')
        if is_counted:
            self.line(f"left -= {count} * {cost}")
        if code is not None:
            self.line(f'{target} = list(unpack_from(f">{{{count}}}{code}", data, p))')
            self.line(f"p += {count} * {smallest}")
        else:
            self.elements(field, target, where, count)
        self.depth -= 1

    def elements(self, field: Field, target: str, where: str, count: str) -> None:
        """Generate the loop that reads the elements of an array one by one into `target`."""
        values = self.variable("a")
        self.line(f"{target} = {values} = []")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        if field.struct is not None:
            element = self.struct(field.struct, where)
        else:
            element = self.variable("v")
            if field.type == "uuid":
                self.scalar("uuid", element)
            else:
                self.sized(field.type, element, where, is_nullable=False)
        self.flush()
        self.line(f"{values}.append({element})")
        self.depth -= 1
