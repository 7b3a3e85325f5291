"""A table of message schemas, as text that is read one message at a time.

This file alone decides the notation. It knows no message by name. Reading a table costs one split;
a message is parsed when it is first asked for.

The notation, by example::

    # a comment; blocks are parted by blank lines
    request FetchRequest key=1 versions=4-18 flexible=12
      replica_id int32 versions=4-14 default=-1 ignorable
      topics []FetchTopic
      cluster_id string versions=12-18 nullable tag=0 default=null ignorable
    :FetchTopic
      topic string versions=4-12 ignorable

``versions=`` is left out where a field is in all versions of its message; a bare ``nullable``
holds in all versions of the field, else ``nullable=7-9`` names them; a field with a ``tag`` is
tagged in all versions of the field. ``legacy`` keeps the fixed-size length in flexible versions.
"""

from dataclasses import dataclass

from headwater.base.schema.model import (
    EVERY_NUMBER_FORMAT,
    ZERO_UUID,
    Field,
    MessageSchema,
    Scalar,
    StructSchema,
)

_NO_VERSIONS = range(0)


@dataclass(frozen=True, slots=True)
class Heading:
    """The first line of a message's block, which tells all but its fields."""

    kind: str
    name: str
    api_key: int | None
    versions: range
    first_flexible: int | None


class Table:
    """The schemas of one text."""

    def __init__(self, text: str) -> None:
        self._blocks: dict[str, str] = {}
        for block in text.split("\n\n"):
            lines = block.strip("\n")
            if lines and not lines.startswith("#"):
                self._blocks[lines.split(" ", 2)[1]] = lines
        self._schemas: dict[str, MessageSchema] = {}

    def names(self) -> list[str]:
        """Return the messages' names in the text's order."""
        return list(self._blocks)

    def heading(self, name: str) -> Heading:
        """Return what the first line of a message says, without parsing its fields."""
        return _parse_heading(self._blocks[name].split("\n", 1)[0])

    def schema(self, name: str) -> MessageSchema:
        """Return a message's schema; raises KeyError for a name that is not in the table."""
        if name not in self._schemas:
            self._schemas[name] = _parse_message(self._blocks[name])
        return self._schemas[name]


def parse_versions(text: str) -> range:
    """Return the range that ``3`` or ``3-13`` means."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _parse_heading(line: str) -> Heading:
    kind, name, *words = line.split()
    facts = dict(word.split("=") for word in words)
    return Heading(
        kind=kind,
        name=name,
        api_key=int(facts["key"]) if "key" in facts else None,
        versions=parse_versions(facts["versions"]),
        first_flexible=int(facts["flexible"]) if "flexible" in facts else None,
    )


def _parse_message(block: str) -> MessageSchema:
    first, *lines = block.split("\n")
    heading = _parse_heading(first)
    fields: dict[str, list[Field]] = {heading.name: []}
    struct = heading.name
    for line in lines:
        if line.startswith(":"):
            struct = line[1:]
            fields[struct] = []
        else:
            fields[struct].append(_parse_field(line, heading.versions))
    root, *structs = (StructSchema(name, tuple(of)) for name, of in fields.items())
    return MessageSchema(
        name=heading.name,
        kind=heading.kind,
        api_key=heading.api_key,
        versions=heading.versions,
        first_flexible=heading.first_flexible,
        root=root,
        structs={struct.name: struct for struct in structs},
    )


def _parse_field(line: str, message_versions: range) -> Field:
    name, type_, *words = line.split()
    facts = dict(word.partition("=")[::2] for word in words)
    versions = parse_versions(facts["versions"]) if "versions" in facts else message_versions
    nullable = _NO_VERSIONS
    if "nullable" in facts:
        nullable = parse_versions(facts["nullable"]) if facts["nullable"] else versions
    is_array = type_.startswith("[]")
    element = type_.removeprefix("[]")
    default_text = facts.get("default", "")
    default_is_null = default_text == "null" or element == "records"
    return Field(
        name=name,
        type=element,
        is_array=is_array,
        versions=versions,
        nullable=nullable,
        tag=int(facts["tag"]) if "tag" in facts else None,
        tagged=versions if "tag" in facts else _NO_VERSIONS,
        default=None if is_array or default_is_null else _default(element, default_text),
        default_is_null=default_is_null,
        ignorable="ignorable" in facts,
        legacy_length="legacy" in facts,
    )


def _default(type_: str, text: str) -> Scalar:
    if type_ == "bool":
        return text == "true"
    if type_ == "float64":
        return float(text or 0)
    if type_ in EVERY_NUMBER_FORMAT:
        return int(text or 0)
    defaults: dict[str, Scalar] = {"string": "", "bytes": b"", "uuid": ZERO_UUID}
    return defaults.get(type_)
