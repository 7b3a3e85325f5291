"""The codec of one message in one version, and the catalogue that hands them out.

This file alone decides when classes are built and codecs compiled: on first use, then never again.
It knows no message by name.
"""

import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from headwater.base.errors import HeadwaterError
from headwater.base.schema.classes import Message, Struct, build_message
from headwater.base.schema.decoding import compile_decoder
from headwater.base.schema.encoding import compile_encoder, compile_struct_encoder
from headwater.base.schema.model import has_records
from headwater.base.schema.table import Table

MessageT = TypeVar("MessageT", bound=Message)


class UnknownVersionError(HeadwaterError):
    """A message has no such version."""


class Codec(Generic[MessageT]):
    """Encodes and decodes one version of one message.

    Attributes:
        decode: ``decode(buffer, pos=0) -> (message, end)``. Records are views of the buffer; all
            else is copied. Raises MalformedMessageError and nothing else for any bytes.
        encode: ``encode(message) -> bytes``. Fields that the version lacks are left out.
        encode_parts: ``encode_parts(message) -> list``, whose concatenation is the message. A
            records value is None, or anything that has a length, or a list of such things; what
            is not small bytes is passed through as a part of its own.
    """

    def __init__(self, message: type[MessageT], version: int) -> None:
        if version not in message.__schema__.versions:
            raise UnknownVersionError(f"{message.__name__} has no version {version}")
        self.message = message
        self.version = version

    @cached_property
    def decode(self) -> "Callable[..., tuple[MessageT, int]]":
        """Compile the decoder when it is first needed."""
        return compile_decoder(self.message, self.version)

    @cached_property
    def encode(self) -> Callable[[MessageT], bytes]:
        """Compile the encoder when it is first needed."""
        if has_records(self.message.__schema__, self.version):
            return lambda message: b"".join(self.encode_parts(message))
        return self._encoder

    @cached_property
    def encode_parts(self) -> Callable[[MessageT], list[Any]]:
        """Compile the encoder when it is first needed."""
        if has_records(self.message.__schema__, self.version):
            return self._encoder
        return lambda message: [self._encoder(message)]

    def element_encoder(self, struct: type[Struct]) -> Callable[[Any], bytes]:
        """Return ``encode(element) -> bytes`` for the elements of one kind.

        In an array such bytes may stand for the element itself, so that an answer which hardly
        changes need not be written anew.
        """
        encode = compile_struct_encoder(struct, self.message, self.version)
        if has_records(self.message.__schema__, self.version):
            return lambda element: b"".join(encode(element))
        return encode

    @cached_property
    def _encoder(self) -> Callable[[MessageT], Any]:
        return compile_encoder(self.message, self.version)


class Catalogue:
    """The messages of one table, as classes."""

    def __init__(self, table_path: Path, module: str) -> None:
        """Take the table's place; it is read when the first message is asked for.

        Args:
            table_path: The file that holds the table.
            module: The module whose attributes the classes are.
        """
        self._path = table_path
        self._module = module
        self._classes: dict[str, type[Message]] = {}

    @cached_property
    def table(self) -> Table:
        """Read the table."""
        return Table(self._path.read_text(encoding="utf-8"))

    def message(self, name: str) -> type[Message]:
        """Return the class of a message; raises KeyError for a name that is not in the table."""
        if name not in self._classes:
            self._classes[name] = build_message(self.table.schema(name), self._module)
        return self._classes[name]

    def attribute(self, name: str) -> type[Message]:
        """Serve as the module's ``__getattr__``: make a class on first use and keep it there."""
        try:
            message = self.message(name)
        except KeyError:
            raise AttributeError(f"module {self._module!r} has no attribute {name!r}") from None
        setattr(sys.modules[self._module], name, message)
        return message


_CODECS: dict[tuple[type[Message], int], Codec[Any]] = {}


def codec(message: type[MessageT], version: int) -> Codec[MessageT]:
    """Return the codec of a message in one version; the same object every time."""
    found = _CODECS.get((message, version))
    if found is None:
        found = _CODECS[message, version] = Codec(message, version)
    return found
