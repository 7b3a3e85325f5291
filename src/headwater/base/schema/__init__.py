"""Turns tables of message schemas into classes and straight-line codecs.

Takes: a table of fields, types and versions; bytes or messages.
Gives: a class per message, and per version a compiled decoder and encoder.
May import: `headwater.base.errors` and the standard library; knows no protocol's messages.
Start reading at: `headwater.base.schema.table`, the notation; then `decoding` and `encoding`.
"""

from headwater.base.schema.classes import Message, SharedDefaultError, Struct
from headwater.base.schema.codec import Catalogue, Codec, UnknownVersionError, codec
from headwater.base.schema.model import ZERO_UUID, Field, MessageSchema, StructSchema
from headwater.base.schema.table import Heading, Table

__all__ = [
    "ZERO_UUID",
    "Catalogue",
    "Codec",
    "Field",
    "Heading",
    "Message",
    "MessageSchema",
    "SharedDefaultError",
    "Struct",
    "StructSchema",
    "Table",
    "UnknownVersionError",
    "codec",
]
