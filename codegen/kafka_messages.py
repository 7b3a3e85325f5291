"""Draw the facts of Kafka's messages from the schemas in its jars: tables, and stubs for mypy.

    python -m codegen.kafka_messages [--jars FOLDER] [--check]

This file alone decides which messages and which of their facts the project holds. The schemas are
JSON with comments; only names, types, versions and defaults are taken, no text. The notation of
the tables stands in `headwater.base.schema.table`.
"""

import argparse
import json
import re
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from codegen.stubs import stub_of
from headwater.base.schema import Table

VERSION = "4.3.0"
ROOT = Path(__file__).parent.parent
JARS = ROOT / ".peers" / "kafka-4.3"

WIRE = ROOT / "src/headwater/delivery/wire/kafka"
FORMATS = ROOT / "src/headwater/delivery/broker/formats"

# What members of a classic group tell each other; the client writes it, the broker reads it.
GROUP_PROTOCOL = ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment")
# What the records of internal topics and control batches hold.
RECORD_JARS = (
    "kafka-group-coordinator",
    "kafka-transaction-coordinator",
    "kafka-share-coordinator",
)
CONTROL_RECORDS = ("EndTxnMarker",)

Schema = dict[str, Any]


def main() -> int:
    """Write the tables and stubs, or say which of them differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jars", type=Path, default=JARS, help="folder that holds Kafka's jars")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 on a difference"
    )
    options = parser.parse_args()
    stale = [
        path
        for path, text in generate(options.jars).items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        print(f"{'differs' if options.check else 'writes'}: {path.relative_to(ROOT)}")
        if not options.check:
            path.write_text(generate(options.jars)[path], encoding="utf-8")
    return int(options.check and bool(stale))


def generate(jars: Path) -> dict[Path, str]:
    """Return every generated file's text by its path."""
    clients = read_schemas(jars, "kafka-clients")
    records = [schema for jar in RECORD_JARS for schema in read_schemas(jars, jar).values()]
    group_protocol = [clients[name] for name in GROUP_PROTOCOL]
    control = [clients[name] for name in CONTROL_RECORDS]
    messages = table_of(["kafka-clients"], [*client_facing(clients), *group_protocol])
    formats = table_of(["kafka-clients", *RECORD_JARS], [*records, *group_protocol, *control])
    return {
        WIRE / "messages.table": messages,
        WIRE / "messages.pyi": stub_of(Table(messages)),
        FORMATS / "records.table": formats,
        FORMATS / "records.pyi": stub_of(Table(formats)),
    }


def read_schemas(jars: Path, artifact: str) -> dict[str, Schema]:
    """Return the schemas of one jar by name."""
    schemas: dict[str, Schema] = {}
    with zipfile.ZipFile(jars / f"{artifact}-{VERSION}.jar") as jar:
        for name in sorted(jar.namelist()):
            if re.fullmatch(r"common/message/\w+\.json", name):
                text = jar.read(name).decode()
                schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
                schemas[schema["name"]] = schema
    return schemas


def client_facing(schemas: dict[str, Schema]) -> Iterable[Schema]:
    """Yield the headers, and the stable versions of each request a broker answers, by api key."""
    yield schemas["RequestHeader"]
    yield schemas["ResponseHeader"]
    requests = [
        schema
        for schema in schemas.values()
        if schema["type"] == "request" and "broker" in schema.get("listeners", ())
    ]
    for request in sorted(requests, key=lambda schema: schema["apiKey"]):
        response = schemas[request["name"].removesuffix("Request") + "Response"]
        assert response["apiKey"] == request["apiKey"]
        first, last = bounds(request["validVersions"])
        assert last is not None
        stable = f"{first}-{last - bool(request.get('latestVersionUnstable'))}"
        yield {**request, "validVersions": stable}
        yield {**response, "validVersions": stable}


def bounds(versions: str) -> tuple[int, int | None]:
    """Return the first and last version that ``3``, ``3-5`` or ``3+`` means; None is no end."""
    if versions.endswith("+"):
        return int(versions[:-1]), None
    first, _, last = versions.partition("-")
    return int(first), int(last or first)


def cut(versions: str | None, within: range) -> range:
    """Return the part of a range of versions that lies in another."""
    if versions is None or versions == "none":
        return range(0)
    first, last = bounds(versions)
    start = max(first, within.start)
    stop = within.stop if last is None else min(last + 1, within.stop)
    return range(start, max(start, stop)) if stop > start else range(0)


def table_of(artifacts: list[str], schemas: Iterable[Schema]) -> str:
    """Return the table of these messages."""
    sources = ", ".join(f"org.apache.kafka:{name}:{VERSION}" for name in artifacts)
    head = (
        f"# Facts of message schemas in {sources} (Apache-2.0).\n"
        "# Written by codegen/kafka_messages.py; the notation is that of headwater.base.schema.\n"
    )
    return "\n".join([head, *(message_block(schema) for schema in schemas)])


def message_block(schema: Schema) -> str:
    """Return one message's block of lines."""
    first, last = bounds(schema["validVersions"])
    assert last is not None
    versions = range(first, last + 1)
    words = [schema["type"].removeprefix("coordinator-"), schema["name"]]
    if "apiKey" in schema:
        words.append(f"key={schema['apiKey']}")
    words.append(f"versions={spelled(versions)}")
    if flexible := cut(schema["flexibleVersions"], versions):
        words.append(f"flexible={flexible.start}")
    structs: dict[str, list[Schema]] = {schema["name"]: schema["fields"]}
    common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}
    lines = [" ".join(words)]
    done: set[str] = set()
    while waiting := [name for name in structs if name not in done]:
        name = waiting[0]
        done.add(name)
        if name != schema["name"]:
            lines.append(f":{name}")
        for field in structs[name]:
            if not cut(field.get("versions", field.get("taggedVersions")), versions):
                continue
            lines.append("  " + field_line(field, versions))
            inner = field["type"].removeprefix("[]")
            if inner[0].isupper():
                structs.setdefault(inner, field.get("fields") or common[inner])
    return "\n".join(lines) + "\n"


def field_line(field: Schema, message_versions: range) -> str:
    """Return one field's line."""
    versions = cut(field.get("versions", field.get("taggedVersions")), message_versions)
    words = [snake_case(field["name"]), field["type"]]
    if versions != message_versions:
        words.append(f"versions={spelled(versions)}")
    if nullable := cut(field.get("nullableVersions"), versions):
        words.append("nullable" if nullable == versions else f"nullable={spelled(nullable)}")
    if "tag" in field:
        assert cut(field["taggedVersions"], message_versions) == versions
        words.append(f"tag={field['tag']}")
    if default := default_word(field):
        words.append(default)
    if field.get("ignorable"):
        words.append("ignorable")
    if "flexibleVersions" in field:
        assert field["flexibleVersions"] == "none"
        words.append("legacy")
    return " ".join(words)


def default_word(field: Schema) -> str:
    """Return a default that is not the type's own.

    A JSON null stands for no default at all, as in Kafka's own generator; the word "null" is the
    null default.
    """
    default = field.get("default")
    if default is None:
        return ""
    if field["type"] == "bool":
        return "default=true" if str(default).lower() == "true" else ""
    if re.fullmatch(r"u?int\d+", field["type"]):
        number = int(str(default), 0)
        return f"default={number}" if number else ""
    assert default in {"null", ""}, field
    return "default=null" if default else ""


def spelled(versions: range) -> str:
    """Return a range of versions in the table's notation."""
    first, last = versions[0], versions[-1]
    return str(first) if first == last else f"{first}-{last}"


def snake_case(name: str) -> str:
    """Return TimeoutMs as timeout_ms."""
    return re.sub(r"(?<!^)(?=[A-Z][a-z])|(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


if __name__ == "__main__":
    sys.exit(main())
