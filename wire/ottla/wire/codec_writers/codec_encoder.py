"""Writer of the source of one encode function for one message and version.

The function is `encode(m, out, records)`: it appends bytes to `out`. Records are not copied; the
function appends (index in `out`, value) to `records` instead. A series of fixed-size fields, with
the length byte of the next field and the zero of absent tagged fields, is written by one `pack`.
"""

from ottla.wire.codec_writers.codec_source import FunctionSource, default_text
from ottla.wire.schema import SCALARS, Field, MessageSchema, StructSchema


def encoder_source(schema: MessageSchema, version: int) -> FunctionSource:
    """Return the source of the encode function for one version of a message, with the names that
    the source needs."""
    writer = _Encoder(schema, version)
    writer.line("def encode(m, out, records):")
    writer.depth += 1
    writer.line("w = out.append")
    writer.struct(schema.root, "m", schema.root.name)
    writer.flush()
    return writer


class _Encoder(FunctionSource):
    """Writer of an encode function's source text, with the queue of fixed-size writes for which no
    code is generated yet."""

    writer = "w"
    """Name of the generated variable that appends bytes to the output. Inside a tagged field
    another variable is used, because the size of the field precedes it."""

    def put(self, code: str, value: str) -> None:
        """Queue the generated write of a fixed-size value. `flush` generates one `pack` for all
        queued values."""
        self.pending.append((code, value))

    def flush(self) -> None:
        """Generate one `pack` call that writes all queued fixed-size values."""
        self.write_pending(self.pending)
        self.pending = []

    def write_pending(self, pending: list[tuple[str, str]]) -> None:
        """Generate one `pack` call that writes the given values, each with its format code.

        Code `x` is a zero byte without a value, `L` is a length below 128.
        """
        if not pending:
            return
        codes = "".join(code for code, _ in pending)
        values = ", ".join(value for code, value in pending if code != "x")
        if not values:
            self.line(f"{self.writer}({bytes(len(codes))!r})")
            return
        if codes == "L":
            self.line(f"{self.writer}(ONE_BYTE[{values}])")
            return
        pack, _ = self.packer("pack", codes.replace("L", "B"))
        self.line(f"{self.writer}({pack}({values}))")

    def either(self, condition: str, when: list[tuple[str, str]], otherwise: str) -> None:
        """Generate an `if` with two branches. Both write the queued values: the first together with
        `when` if `condition` is true, the second before the line `otherwise`."""
        pending, self.pending = self.pending, []
        self.line(f"if {condition}:")
        self.depth += 1
        self.write_pending([*pending, *when])
        self.depth -= 1
        self.line("else:")
        self.depth += 1
        self.write_pending(pending)
        self.line(otherwise)
        self.depth -= 1

    def struct(self, struct: StructSchema, value: str, where: str) -> None:
        """Generate the code that writes the fields of the struct in variable `value`."""
        tagged = []
        for field in struct.fields:
            path = f"{where}.{field.name}"
            if self.version not in field.versions:
                self.absent(field, f"{value}.{field.name}", path)
            elif field.tag is None:
                self.field(field, f"{value}.{field.name}", path)
            else:
                tagged.append(field)
        if self.is_flexible and not tagged:
            self.put("x", "")
        elif self.is_flexible:
            self.tags(sorted(tagged, key=_tag), value, where)

    def absent(self, field: Field, value: str, where: str) -> None:
        """Generate the check that raises an error if a field is set that this message version
        lacks. An ignorable field needs no check."""
        if not field.is_ignorable:
            self.line(f'if {is_set(field, value)}: raise not_in_version("{where}", {self.version})')

    def tags(self, tagged: list[Field], value: str, where: str) -> None:
        """Generate code that writes the tagged fields that are set. Each field is written with its
        tag and size, in order of tags."""
        are_set = " or ".join(is_set(field, f"{value}.{field.name}") for field in tagged)
        self.line(f"if {are_set}:")
        self.depth += 1
        pending, self.pending = self.pending, []
        self.write_pending(pending)
        written = self.variable("t")
        self.line(f"{written} = []")
        outer = self.writer
        for field in tagged:
            assert field.type != "records", "records in a tagged field would have to be copied"
            parts = self.variable("s")
            self.line(f"if {is_set(field, f'{value}.{field.name}')}:")
            self.depth += 1
            self.line(f"{parts} = []")
            self.writer = f"{parts}.append"
            self.field(field, f"{value}.{field.name}", f"{where}.{field.name}")
            self.flush()
            self.line(f'{parts} = b"".join({parts})')
            self.line(f"{written} += (write_uvarint({field.tag}), write_uvarint(len({parts})))")
            self.line(f"{written}.append({parts})")
            self.depth -= 1
        self.writer = outer
        # Three parts per tagged field: tag, size, value.
        count = f"write_uvarint(len({written}) // 3)"
        self.line(f'{self.writer}({count} + b"".join({written}))')
        self.depth -= 1
        self.line("else:")
        self.depth += 1
        self.write_pending([*pending, ("x", "")])
        self.depth -= 1

    def field(self, field: Field, value: str, where: str) -> None:
        """Generate the code that writes one field of this message version."""
        is_nullable = self.version in field.nullable
        if field.is_array:
            self.array(field, value, where, is_nullable=is_nullable)
        elif field.struct is not None:
            self.single_struct(field.struct, value, where, is_nullable=is_nullable)
        elif field.type == "uuid":
            self.put("16s", f"{value}.bytes")
        elif field.type in SCALARS:
            self.put(SCALARS[field.type], value)
        else:
            self.sized(field.type, value, is_nullable=is_nullable)

    def single_struct(
        self, struct: StructSchema, value: str, where: str, *, is_nullable: bool
    ) -> None:
        """Generate the code that writes a struct outside an array. A nullable struct is preceded by
        a sign byte."""
        variable = self.variable("o")
        self.line(f"{variable} = {value}")
        if not is_nullable:
            self.struct(struct, variable, where)
            return
        self.flush()
        self.line(f"if {variable} is None:")
        self.line(f'    {self.writer}(b"\\xff")')
        self.line("else:")
        self.depth += 1
        self.put("b", "1")
        self.struct(struct, variable, where)
        self.flush()
        self.depth -= 1

    def length(self, kind: str, value: str, *, is_nullable: bool) -> None:
        """Generate the code that writes the length or count of `value`, or null if it is None and
        nullable."""
        size = self.variable("n")
        is_compact = self.is_compact(kind)
        count = f"len({value}) + 1" if is_compact else f"len({value})"
        if is_nullable:
            count = f"{0 if is_compact else -1} if {value} is None else {count}"
        self.line(f"{size} = {count}")
        if is_compact:
            more = f"{self.writer}(write_uvarint({size}))"
            self.either(f"{size} < 128", [("L", size)], more)
        else:
            self.put("h" if kind.startswith("string") else "i", size)

    def sized(self, kind: str, value: str, *, is_nullable: bool) -> None:
        """Generate the code that writes text or bytes, or that adds records to `records` with their
        index in `out`."""
        variable = self.variable("v")
        is_text = kind.startswith("string")
        self.line(f"{variable} = {value}")
        if is_text and is_nullable:
            self.line(f"if {variable} is not None: {variable} = {variable}.encode()")
        elif is_text:
            self.line(f"{variable} = {variable}.encode()")
        self.length(kind, variable, is_nullable=is_nullable)
        self.flush()
        written = f"records.append((len(out), {variable}))"
        if kind != "records":
            written = f"{self.writer}({variable})"
        self.line(f"if {variable}: {written}" if is_nullable else written)

    def array(self, field: Field, value: str, where: str, *, is_nullable: bool) -> None:
        """Generate the code that writes the count of an array and its elements."""
        variable = self.variable("a")
        self.line(f"{variable} = {value}")
        self.length("array", variable, is_nullable=is_nullable)
        self.flush()
        code = SCALARS.get(field.type)
        if code is not None and field.type != "uuid":
            packed = f'pack(f">{{len({variable})}}{code}", *{variable})'
            self.line(f"if {variable}: {self.writer}({packed})")
            return
        element = self.variable("e")
        self.line(f"for {element} in {variable}{' or ()' if is_nullable else ''}:")
        self.depth += 1
        if field.struct is not None:
            self.struct(field.struct, element, where)
        elif field.type == "uuid":
            self.put("16s", f"{element}.bytes")
        else:
            self.sized(field.type, element, is_nullable=False)
        self.flush()
        self.depth -= 1


def is_set(field: Field, value: str) -> str:
    """Return the source text of the condition that a message's field differs from its default."""
    if field.default is None:
        return f"{value} is not None"
    if field.struct is not None and not field.is_array:
        return " or ".join(is_set(inner, f"{value}.{inner.name}") for inner in field.struct.fields)
    if field.is_array and field.default is not None:
        return f"{value} or {value} is None"
    return f"{value} != {default_text(field)}"


def _tag(field: Field) -> int:
    assert field.tag is not None
    return field.tag
