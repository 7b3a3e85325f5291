"""Source of a decoder: bytes of one version of one message into objects.

This file alone decides how decoders read. It knows no message by name.

How the source comes to be fast and safe:

- Neighbouring fixed-size fields, and the first byte or the fixed-size form of a length behind
  them, are read by one precompiled struct straight into the object's slots.
- Positions only grow. A slice that reaches beyond the end is therefore noticed by the next read,
  or by the one comparison at the function's end, and needs no check of its own.
- An array's count is compared with the bytes that are left, at the least each element can take,
  before anything is allocated. Requests, which come from strangers, have a budget of elements too,
  because three bytes can ask for an object of two hundred.
"""

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headwater.base.errors import MalformedMessageError
from headwater.base.schema import runtime
from headwater.base.schema.classes import (
    Message,
    Struct,
    constant_default,
    default_maker,
    needs_fresh_default,
)
from headwater.base.schema.model import FIXED_FORMAT, Field, StructSchema, has_records
from headwater.base.schema.source import Source

_STRING_BYTES_MAX = 0x7FFF
_LEGACY_LENGTH_FORMAT = {"string": "h", "bytes": "i", "records": "i"}


def compile_decoder(message: type[Message], version: int) -> Callable[..., Any]:
    """Return ``decode(buffer, pos=0) -> (message, pos)`` for one version."""
    source = decoder_source(message, version)
    return source.function("decode", f"<decode {message.__name__} v{version}>")


def decoder_source(message: type[Message], version: int) -> Source:
    """Return the source that `compile_decoder` compiles."""
    writer = _Decoder(message, version)
    writer.write()
    return writer.source


class _Decoder:
    def __init__(self, message: type[Message], version: int) -> None:
        self._message = message
        self._schema = message.__schema__
        self._version = version
        self._flexible = self._schema.is_flexible(version)
        self._has_budget = self._schema.kind == "request"
        # Fixed-size values that wait to be read together: (struct format, assignment target).
        self._run: list[tuple[str, str]] = []
        self._depth = 0
        self.source = Source(
            new=object.__new__,
            errors=(IndexError, struct.error, UnicodeDecodeError, MalformedMessageError),
            malformed=runtime.malformed,
            refuse=runtime.refuse,
            longer=runtime.longer_uvarint,
            skip=runtime.skip_tagged_fields,
        )

    def write(self) -> None:
        source = self.source
        with source.block("def decode(buffer, pos=0):"):
            with source.block("try:"):
                source.line("limit = len(buffer)")
                if self._has_budget:
                    source.line(f"budget = {runtime.REQUEST_ELEMENTS_MAX}")
                if has_records(self._schema, self._version):
                    source.line("view = memoryview(buffer)")
                self._struct("o", self._schema.root, self._message)
                with source.block("if pos > limit:"):
                    source.line("refuse('the bytes end too early')")
            with source.block("except errors as error:"):
                source.line(
                    f"raise malformed({self._schema.name!r}, {self._version}, error) from error"
                )
            source.line("return o, pos")

    def _struct(self, target: str, schema: StructSchema, class_: type[Struct]) -> None:
        self.source.line(f"{target} = new({self.source.constant('Class', schema.name, class_)})")
        for field in [*schema.absent(self._version), *schema.tagged(self._version)]:
            self._set_default(target, field)
        for field in schema.plain(self._version):
            self._field(f"{target}.{field.name}", field)
        if self._flexible:
            self._tagged_fields(target, schema)
        self._flush()

    def _set_default(self, target: str, field: Field) -> None:
        structs = self._message.__structs__
        if field.is_array and not field.default_is_null:
            value = "[]"
        elif needs_fresh_default(field, structs):
            value = self.source.constant("Class", field.type, default_maker(field, structs)) + "()"
        elif field.is_struct:
            shared = constant_default(field, structs)
            value = self.source.constant("default", field.name, shared)
        else:
            value = repr(field.default)
        self.source.line(f"{target}.{field.name} = {value}")

    def _field(self, target: str, field: Field, *, tagged: bool = False) -> None:
        if field.is_array:
            self._array(target, field)
        elif field.type in FIXED_FORMAT:
            self._run.append((FIXED_FORMAT[field.type], target))
        elif field.is_struct:
            self._inner_struct(target, field, tagged=tagged)
        else:
            self._variable(target, field)

    def _flush(self) -> None:
        """Read the values that wait, with one struct."""
        if not self._run:
            return
        layout = "".join(form for form, _ in self._run)
        if layout == "B":
            self.source.line(f"{self._run[0][1]} = buffer[pos]")
        else:
            targets = ", ".join(target for _, target in self._run)
            comma = "," if len(self._run) == 1 else ""
            self.source.line(f"{targets}{comma} = {self.source.reader(layout)}(buffer, pos)")
        self.source.line(f"pos += {struct.calcsize('>' + layout)}")
        self._run.clear()

    def _length(
        self, legacy_format: str, *, compact: bool, long: bool = False, string_name: str = ""
    ) -> str:
        """Read a length into ``n`` and return the condition under which it is not null.

        A compact length is one more than the length, and zero for null. One that is seldom short
        is read without a call, up to three bytes.
        """
        if not compact:
            self._run.append((legacy_format, "n"))
            self._flush()
            return "n >= 0"
        self._run.append(("B", "n"))
        self._flush()
        with self.source.block("if n > 127:"):
            if long:
                self._two_bytes_more()
            else:
                self.source.line("n, pos = longer(buffer, pos, n)")
            if string_name:
                # Kafka's limit, which two-byte lengths imply: older versions could not repeat it.
                with self.source.block(f"if n > {_STRING_BYTES_MAX + 1}:"):
                    self.source.line(f"refuse('{string_name} is too long')")
        return "n"

    def _two_bytes_more(self) -> None:
        """Add a second and third byte to the length in ``n``, whose first byte is marked."""
        source = self.source
        source.line("more = buffer[pos]")
        source.line("pos += 1")
        source.line("n += (more << 7) - 128")
        with source.block("if more > 127:"):
            source.line("more = buffer[pos]")
            source.line("pos += 1")
            source.line("n += (more << 14) - 16384")
            with source.block("if more > 127:"):
                source.line("n, pos = longer(buffer, pos - 2, buffer[pos - 3])")

    def _or_null(self, target: str, field: Field, *, compact: bool) -> None:
        """Add the branch that meets a null, behind the branch that meets a value."""
        with self.source.block("else:"):
            if self._version not in field.nullable:
                self.source.line(f"refuse('{field.name} is null')")
                return
            if not compact:
                with self.source.block("if n != -1:"):
                    self.source.line(f"refuse('{field.name} has a negative length')")
            self.source.line(f"{target} = None")

    def _variable(self, target: str, field: Field) -> None:
        compact = self._flexible and not field.legacy_length
        legacy_format = _LEGACY_LENGTH_FORMAT[field.type]
        present = self._length(
            legacy_format,
            compact=compact,
            long=field.type == "records",
            string_name=field.name if field.type == "string" else "",
        )
        with self.source.block(f"if {present}:"):
            end = "pos + n - 1" if compact else "pos + n"
            source = "view" if field.type == "records" else "buffer"
            piece = f"{source}[pos:(pos := {end})]"
            value = {"string": f"str({piece}, 'utf-8')", "bytes": f"bytes({piece})"}
            self.source.line(f"{target} = {value.get(field.type, piece)}")
        self._or_null(target, field, compact=compact)

    def _array(self, target: str, field: Field) -> None:
        present = self._length("i", compact=self._flexible)
        with self.source.block(f"if {present}:"):
            if self._flexible:
                self.source.line("n -= 1")
            least = self._schema.min_bytes(field, self._version)
            assert least > 0, f"{field.name} has elements without bytes"
            with self.source.block(f"if n * {least} > limit - pos:"):
                self.source.line(f"refuse('{field.name} has more elements than bytes are left')")
            if field.type in FIXED_FORMAT:
                self._fixed_elements(target, FIXED_FORMAT[field.type], least)
            else:
                self._elements(target, field)
        self._or_null(target, field, compact=self._flexible)

    def _fixed_elements(self, target: str, element: str, element_bytes: int) -> None:
        readers = self.source.constant("readers", element, runtime.ArrayReaders(element))
        self.source.line(f"{target} = list({readers}[n](buffer, pos))")
        self.source.line(f"pos += n * {element_bytes}")

    def _elements(self, target: str, field: Field) -> None:
        if self._has_budget:
            self.source.line("budget -= n")
            with self.source.block("if budget < 0:"):
                self.source.line("refuse('there are too many elements')")
        self._depth += 1
        items, item = f"items{self._depth}", f"o{self._depth}"
        self.source.line(f"{target} = {items} = []")
        with self.source.block("for _ in range(n):"):
            if field.is_struct:
                struct_ = self._schema.structs[field.type]
                self._struct(item, struct_, self._message.__structs__[field.type])
            else:
                # An element is never null, whatever the array is.
                self._variable(item, replace(field, is_array=False, nullable=range(0)))
            self.source.line(f"{items}.append({item})")
        self._depth -= 1

    def _inner_struct(self, target: str, field: Field, *, tagged: bool) -> None:
        schema = self._schema.structs[field.type]
        class_ = self._message.__structs__[field.type]
        self._depth += 1
        inner = f"o{self._depth}"
        if self._version in field.nullable:
            # Kafka marks a null struct with -1 in the body, but with 0 in a tagged field.
            self._run.append(("b", "n"))
            self._flush()
            with self.source.block("if n > 0:" if tagged else "if n >= 0:"):
                self._struct(inner, schema, class_)
                self.source.line(f"{target} = {inner}")
            with self.source.block("else:"):
                self.source.line(f"{target} = None")
        else:
            self._struct(inner, schema, class_)
            self.source.line(f"{target} = {inner}")
        self._depth -= 1

    def _tagged_fields(self, target: str, schema: StructSchema) -> None:
        source = self.source
        self._run.append(("B", "n"))
        self._flush()
        known = schema.tagged(self._version)
        with source.block("if n:"):
            if not known:
                source.line("pos = skip(buffer, pos, n)")
                return
            with source.block("if n > 127:"):
                source.line("n, pos = longer(buffer, pos, n)")
            self._depth += 1
            tag, end = f"tag{self._depth}", f"end{self._depth}"
            with source.block("for _ in range(n):"):
                self._uvarint(tag)
                self._uvarint("n")
                source.line(f"{end} = pos + n")
                for number, field in enumerate(known):
                    with source.block(f"{'el' if number else ''}if {tag} == {field.tag}:"):
                        self._field(f"{target}.{field.name}", field, tagged=True)
                        self._flush()
                        with source.block(f"if pos != {end}:"):
                            source.line(f"refuse('{field.name} has another size than it says')")
                with source.block("else:"):
                    source.line(f"pos = {end}")
            self._depth -= 1

    def _uvarint(self, target: str) -> None:
        self.source.line(f"{target} = buffer[pos]")
        self.source.line("pos += 1")
        with self.source.block(f"if {target} > 127:"):
            self.source.line(f"{target}, pos = longer(buffer, pos, {target})")
