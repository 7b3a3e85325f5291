"""Source of an encoder: objects into bytes of one version of one message.

This file alone decides how encoders write. It knows no message by name, and trusts its caller: a
value of the wrong type or range raises whatever Python raises.

Neighbouring fixed-size fields, a length behind them and the empty list of tagged fields are
written by one precompiled struct. Pieces are collected in a list and joined once. Records are
passed through as they are, so that a file's bytes need never enter the process; so is an element
of an array that comes as bytes, from whoever encoded the same struct before.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headwater.base.schema import runtime
from headwater.base.schema.classes import Message, Struct, shared_default
from headwater.base.schema.model import FIXED_FORMAT, Field, StructSchema, has_records
from headwater.base.schema.source import Source

_LEGACY_LENGTH_FORMAT = {"string": "h", "bytes": "i", "records": "i"}


def compile_encoder(message: type[Message], version: int) -> Callable[[Any], Any]:
    """Return ``encode(message)`` for one version.

    It gives the list of parts where the version has records, else bytes.
    """
    source = encoder_source(message, version)
    return source.function("encode", f"<encode {message.__name__} v{version}>")


def compile_struct_encoder(
    struct: type[Struct], message: type[Message], version: int
) -> Callable[[Any], Any]:
    """Return ``encode(struct)`` for a struct of one version of a message.

    It gives what `compile_encoder` would write for an element of that kind.
    """
    writer = _Encoder(message, version)
    writer.write(message.__schema__.structs[struct.__name__])
    return writer.source.function("encode", f"<encode {struct.__qualname__} v{version}>")


def encoder_source(message: type[Message], version: int) -> Source:
    """Return the source that `compile_encoder` compiles."""
    writer = _Encoder(message, version)
    writer.write(message.__schema__.root)
    return writer.source


class _Encoder:
    def __init__(self, message: type[Message], version: int) -> None:
        self._message = message
        self._schema = message.__schema__
        self._version = version
        self._flexible = self._schema.is_flexible(version)
        # Fixed-size values that wait to be written together: (struct format, expression).
        self._run: list[tuple[str, str]] = []
        self._depth = 0
        self._out = "out"
        self.source = Source(
            join=b"".join,
            one_byte=runtime.ONE_BYTE,
            uvarint=runtime.uvarint,
            bytes_types=runtime.BYTES_TYPES,
            put_records=runtime.put_records,
        )

    def write(self, schema: StructSchema) -> None:
        source = self.source
        in_parts = has_records(self._schema, self._version)
        with source.block("def encode(o):"):
            source.line("out = []")
            if in_parts:
                source.line("parts = []")
            self._struct("o", schema)
            self._flush()
            if in_parts:
                with source.block("if out:"):
                    source.line("parts.append(join(out))")
                source.line("return parts")
            else:
                source.line("return join(out)")

    def _struct(self, value: str, schema: StructSchema) -> None:
        for field in schema.plain(self._version):
            self._field(f"{value}.{field.name}", field)
        if self._flexible:
            self._tagged_fields(value, schema.tagged(self._version))

    def _field(self, value: str, field: Field, *, tagged: bool = False) -> None:
        if field.is_array:
            self._array(value, field)
        elif field.type in FIXED_FORMAT:
            self._run.append((FIXED_FORMAT[field.type], value))
        elif field.is_struct:
            self._inner_struct(value, field, tagged=tagged)
        elif field.type == "records":
            self._records(value, field)
        else:
            self._variable(value, field)

    def _flush(self) -> None:
        """Write the values that wait, with one struct."""
        if self._run:
            self.source.line(f"{self._out}.append({self._packed(self._run)})")
            self._run.clear()

    def _packed(self, run: list[tuple[str, str]]) -> str:
        """Return the expression for the bytes of a run."""
        layout = "".join(form for form, _ in run)
        values = ", ".join(value for _, value in run if value)
        return f"{self.source.writer(layout)}({values})" if values else repr(bytes(len(layout)))

    def _length(self, legacy_format: str, *, compact: bool) -> None:
        """Write the values that wait and the length in ``n``, which is already in its form."""
        if not compact:
            self._run.append((legacy_format, "n"))
            self._flush()
            return
        short = self._packed([*self._run, ("B", "n")]) if self._run else "one_byte[n]"
        with self.source.block("if n < 128:"):
            self.source.line(f"{self._out}.append({short})")
        with self.source.block("else:"):
            self._flush()
            self.source.line(f"{self._out}.append(uvarint(n))")

    def _null_length(self, *, compact: bool) -> str:
        return "0" if compact else "-1"

    def _variable(self, value: str, field: Field) -> None:
        compact = self._flexible and not field.legacy_length
        data = f"{value}.encode()" if field.type == "string" else value
        count = "len(data) + 1" if compact else "len(data)"
        if self._version in field.nullable:
            self.source.line(f"data = {value}")
            with self.source.block("if data is None:"):
                self.source.line("data = b''")
                self.source.line(f"n = {self._null_length(compact=compact)}")
            with self.source.block("else:"):
                if field.type == "string":
                    self.source.line("data = data.encode()")
                self.source.line(f"n = {count}")
        else:
            self.source.line(f"data = {data}")
            self.source.line(f"n = {count}")
        self._length(_LEGACY_LENGTH_FORMAT[field.type], compact=compact)
        self.source.line(f"{self._out}.append(data)")

    def _records(self, value: str, field: Field) -> None:
        source = self.source
        one_more = " + 1" if self._flexible else ""
        source.line(f"data = {value}")
        if self._version in field.nullable:
            with source.block("if data is None:"):
                null = ("B", "0") if self._flexible else ("i", "-1")
                source.line(f"{self._out}.append({self._packed([*self._run, null])})")
            with source.block("else:"):
                self._present_records(one_more)
        else:
            self._present_records(one_more)

    def _present_records(self, one_more: str) -> None:
        source = self.source
        source.line("kind = data.__class__")
        with source.block("if kind is list or kind is tuple:"):
            source.line(f"n = sum(map(len, data)){one_more}")
        with source.block("else:"):
            source.line(f"n = len(data){one_more}")
        if self._flexible:
            self._records_length()
        else:
            self._length("i", compact=False)
        # What `put_records` does, without the call, for the two values that are not rare.
        with source.block(f"if n <= {runtime.INLINE_RECORDS_BYTES_MAX} and kind in bytes_types:"):
            source.line("out.append(data)")
        with source.block("elif kind is list or kind is tuple:"):
            source.line("put_records(parts, out, data)")
        with source.block("else:"):
            source.line("parts.append(join(out))")
            source.line("parts.append(data)")
            source.line("out = []")

    def _records_length(self) -> None:
        """Write the compact length of records, which seldom fits one byte."""
        source = self.source
        low, middle = "n & 127 | 128", "n >> 7 & 127 | 128"
        forms = {2**7: ["n"], 2**14: [low, "n >> 7"], 2**21: [low, middle, "n >> 14"]}
        word = "if"
        for limit, values in forms.items():
            with source.block(f"{word} n < {limit}:"):
                run = [*self._run, *(("B", value) for value in values)]
                source.line(f"{self._out}.append({self._packed(run)})")
            word = "elif"
        with source.block("else:"):
            self._flush()
            source.line(f"{self._out}.append(uvarint(n))")

    def _array(self, value: str, field: Field) -> None:
        self._depth += 1
        items = f"items{self._depth}"
        self.source.line(f"{items} = {value}")
        if field.type in FIXED_FORMAT:
            self._fixed_elements(items, field)
        else:
            count = f"len({items}) + 1" if self._flexible else f"len({items})"
            if self._version in field.nullable:
                with self.source.block(f"if {items} is None:"):
                    self.source.line(f"{items} = ()")
                    self.source.line(f"n = {self._null_length(compact=self._flexible)}")
                with self.source.block("else:"):
                    self.source.line(f"n = {count}")
            else:
                self.source.line(f"n = {count}")
            self._length("i", compact=self._flexible)
            self._elements(items, field)
        self._depth -= 1

    def _fixed_elements(self, items: str, field: Field) -> None:
        self._flush()
        element = FIXED_FORMAT[field.type]
        writers = runtime.ArrayBytes(element, compact=self._flexible)
        written = f"{self.source.constant('arrays', element, writers)}[tuple({items})]"
        if self._version in field.nullable:
            null = repr(b"\0" if self._flexible else b"\xff\xff\xff\xff")
            written = f"{null} if {items} is None else {written}"
        self.source.line(f"{self._out}.append({written})")

    def _elements(self, items: str, field: Field) -> None:
        item = f"o{self._depth}"
        with self.source.block(f"for {item} in {items}:"):
            if field.is_struct:
                with self.source.block(f"if {item}.__class__ is bytes:"):
                    self.source.line(f"{self._out}.append({item})")
                    self.source.line("continue")
                self._struct(item, self._schema.structs[field.type])
            else:
                self._variable(item, replace(field, is_array=False, nullable=range(0)))
            self._flush()

    def _inner_struct(self, value: str, field: Field, *, tagged: bool) -> None:
        schema = self._schema.structs[field.type]
        self._depth += 1
        inner = f"o{self._depth}"
        self.source.line(f"{inner} = {value}")
        if self._version in field.nullable:
            # Kafka marks a null struct with -1 in the body, but with 0 in a tagged field.
            self._flush()
            null = repr(b"\0" if tagged else b"\xff")
            with self.source.block(f"if {inner} is None:"):
                self.source.line(f"{self._out}.append({null})")
            with self.source.block("else:"):
                self._run.append(("b", "1"))
                self._struct(inner, schema)
                self._flush()
        else:
            self._struct(inner, schema)
            self._flush()
        self._depth -= 1

    def _tagged_fields(self, value: str, fields: list[Field]) -> None:
        if not fields:
            # The empty list of tagged fields is a zero byte, which `struct` writes for "x".
            self._run.append(("x", ""))
            return
        self._depth += 1
        outer_out, outer_run = self._out, self._run
        tagged, count = f"tagged{self._depth}", f"count{self._depth}"
        self.source.line(f"{count} = 0")
        for field in fields:
            with self.source.block(f"if {self._is_set(f'{value}.{field.name}', field)}:"):
                with self.source.block(f"if not {count}:"):
                    self.source.line(f"{tagged} = []")
                self.source.line(f"{count} += 1")
                self._out, self._run = f"field{self._depth}", []
                self.source.line(f"{self._out} = []")
                self._field(f"{value}.{field.name}", field, tagged=True)
                self._flush()
                self.source.line(f"data = join({self._out})")
                head = f"{runtime.uvarint(field.tag or 0)!r}, uvarint(len(data)), data"
                self.source.line(f"{tagged} += ({head})")
        self._out, self._run = outer_out, outer_run
        with self.source.block(f"if {count}:"):
            waiting = list(self._run)
            self._flush()
            self.source.line(f"{self._out}.append(uvarint({count}))")
            self.source.line(f"{self._out} += {tagged}")
        with self.source.block("else:"):
            self._run = [*waiting, ("x", "")]
            self._flush()
        self._depth -= 1

    def _is_set(self, value: str, field: Field) -> str:
        """Return the condition under which a tagged field differs from its default."""
        if field.default_is_null:
            return f"{value} is not None"
        if field.is_array:
            return f"{value} is None or len({value})"
        if field.is_struct:
            class_ = self._message.__structs__[field.type]
            default = self.source.constant("default", field.type, shared_default(class_))
            return f"{value} is not {default} and {value} != {default}"
        return f"{value} != {field.default!r}"
