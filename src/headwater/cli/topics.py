"""`headwater topic`: topics, their partitions and configs.

This file alone decides what people can ask of and do to topics. What destroys records says so and
wants to be confirmed.
"""

import click

from headwater.base.errors import ErrorCode, KafkaError
from headwater.cli import output, positions
from headwater.cli.errors import CommandError, Exit
from headwater.cli.options import (
    Number,
    Session,
    examples,
    leave_internal_alone,
    parse_configs,
    want_yes,
    with_session,
)
from headwater.delivery.client import admin, enabled
from headwater.delivery.client.admin import EARLIEST, LATEST, TOPIC_RESOURCE
from headwater.delivery.client.cluster import Place, TopicInfo

# Where a config comes from, by DescribeConfigs' numbers.
_SOURCES = {
    1: "topic",
    2: "broker, while it runs",
    3: "cluster, while it runs",
    4: "broker's file",
    5: "default",
}
_OWN = 1

_yes = click.option("-y", "--yes", is_flag=True, help="Do it without being asked.")


@click.group(
    epilog=examples(
        "headwater topic ls",
        "headwater topic create orders -p 3 -c retention.ms=7d",
        "headwater topic describe orders",
    )
)
def topic() -> None:
    """List, create, change and delete topics."""


def _places(*topics: TopicInfo) -> list[Place]:
    return [(each.name, partition.number) for each in topics for partition in each.partitions]


def _shown_records(number: int, *, about: bool) -> output.Cell:
    """Return how many there are; offsets of records that compaction removed are counted too."""
    return f"~{number:,}" if about and number else number


# --- looking ------------------------------------------------------------------------------------


@topic.command("ls", epilog=examples("headwater topic ls", "headwater topic ls --all --json"))
@click.option("-a", "--all", "internal", is_flag=True, help="Internal topics too.")
@with_session
def list_topics(*, session: Session, internal: bool) -> None:
    """List topics with what they hold.

    Records are counted by offsets, from the first to the end. What compaction removed and the
    markers of transactions count too, so there may be fewer: ~ marks topics that are compacted.
    """
    cluster = session.cluster
    topics = [each for each in cluster.topics().values() if internal or not each.internal]
    topics.sort(key=lambda each: each.name)
    sizes = admin.log_sizes(cluster)
    places = _places(*topics)
    first = admin.list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    end = admin.list_offsets(cluster, dict.fromkeys(places, LATEST))
    compacted = enabled.compacted_topics(cluster, [each.name for each in topics])
    rows: list[dict[str, str | int]] = [
        {
            "topic": each.name,
            "partitions": len(each.partitions),
            "replicas": len(each.partitions[0].replicas) if each.partitions else 0,
            "records": sum(end[place] - first[place] for place in _places(each)),
            "bytes": sum(sizes.get(place, 0) for place in _places(each)),
        }
        for each in topics
    ]
    if session.as_json:
        output.document({"topics": rows})
    elif rows:
        output.table(
            ["TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "SIZE"],
            [
                [
                    row["topic"],
                    row["partitions"],
                    row["replicas"],
                    _shown_records(int(row["records"]), about=row["topic"] in compacted),
                    output.bytes_text(int(row["bytes"])),
                ]
                for row in rows
            ],
        )
    else:
        output.note("no topics yet; create one with: headwater topic create NAME")


@topic.command(
    epilog=examples("headwater topic describe orders", "headwater topic describe orders --json")
)
@click.argument("name", metavar="TOPIC")
@with_session
def describe(*, session: Session, name: str) -> None:
    """Show a topic's partitions and its own configs.

    Records are counted as in headwater topic ls: by offsets, ~ where the topic is compacted.
    """
    cluster = session.cluster
    info = session.topic(name)
    places = _places(info)
    sizes = admin.log_sizes(cluster)
    first = admin.list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    end = admin.list_offsets(cluster, dict.fromkeys(places, LATEST))
    configs = admin.describe_configs(cluster, TOPIC_RESOURCE, name)
    own = {config.name: config.value for config in configs if config.source == _OWN}
    compacted = any(
        config.name == "cleanup.policy" and "compact" in (config.value or "") for config in configs
    )
    rows = [
        {
            "partition": each.number,
            "leader": each.leader,
            "replicas": each.replicas,
            "in_sync": each.in_sync,
            "first_offset": first[name, each.number],
            "end_offset": end[name, each.number],
            "records": end[name, each.number] - first[name, each.number],
            "bytes": sizes.get((name, each.number), 0),
        }
        for each in info.partitions
    ]
    if session.as_json:
        document = {"topic": name, "id": info.topic_id.hex(), "internal": info.internal}
        output.document({**document, "configs": own, "partitions": rows})
        return
    output.facts(
        {
            "topic": name,
            "partitions": len(info.partitions),
            "configs": ", ".join(f"{key}={value}" for key, value in sorted(own.items()))
            or "all default",
        }
    )
    output.say("")
    output.table(
        ["PARTITION", "LEADER", "REPLICAS", "FIRST", "END", "RECORDS", "SIZE"],
        [
            [
                each.number,
                each.leader,
                ",".join(map(str, each.replicas)),
                first[name, each.number],
                end[name, each.number],
                _shown_records(end[name, each.number] - first[name, each.number], about=compacted),
                output.bytes_text(sizes.get((name, each.number), 0)),
            ]
            for each in info.partitions
        ],
    )


# --- changing -----------------------------------------------------------------------------------


@topic.command(
    epilog=examples(
        "headwater topic create orders",
        "headwater topic create orders -p 12 -c retention.ms=7d -c retention.bytes=10GiB",
        "headwater topic create metrics -c headwater.overflow=drop "
        "-c headwater.overflow.bytes=1GiB",
    )
)
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("-p", "--partitions", metavar="N", type=Number(1), help="[default: the broker's]")
@click.option("-r", "--replicas", metavar="N", type=Number(1), help="[default: the broker's]")
@click.option("-c", "--config", "pairs", metavar="NAME=VALUE", multiple=True, help="A config.")
@click.option("--if-not-exists", is_flag=True, help="Leave a topic alone that is there already.")
@click.option("--dry-run", is_flag=True, help="Only check whether it could be created.")
@with_session
def create(
    *,
    session: Session,
    names: tuple[str, ...],
    partitions: int | None,
    replicas: int | None,
    pairs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create topics."""
    leave_internal_alone(*names)
    configs = parse_configs(pairs)
    results: list[dict[str, object]] = []
    for name in names:
        created = True
        try:
            admin.create_topic(
                session.cluster,
                name,
                partitions=partitions or -1,
                replication_factor=replicas or -1,
                configs=configs,
                validate_only=dry_run,
            )
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            if not if_not_exists:
                raise CommandError(
                    Exit.IN_THE_WAY,
                    "TOPIC_ALREADY_EXISTS",
                    f"topic {name!r} exists already",
                    hint=f"see it with: headwater topic describe {name}, or use --if-not-exists",
                ) from error
            created = False
        results.append({"topic": name, "created": created and not dry_run, "dry_run": dry_run})
        if not session.as_json:
            done = "could be created" if dry_run else "created"
            output.say(f"{name}: {done if created else 'exists already'}")
    if session.as_json:
        output.document({"topics": results})


@topic.command(
    epilog=examples(
        "headwater topic config orders",
        "headwater topic config orders --all --json",
        "headwater topic config orders retention.ms=3d flush.messages=10000",
        "headwater topic config orders --unset retention.ms",
    )
)
@click.argument("name", metavar="TOPIC")
@click.argument("pairs", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--unset", metavar="NAME", multiple=True, help="Take a config back to its default.")
@click.option("-a", "--all", "show_all", is_flag=True, help="Show those with their default too.")
@with_session
def config(
    *,
    session: Session,
    name: str,
    pairs: tuple[str, ...],
    unset: tuple[str, ...],
    show_all: bool,
) -> None:
    """Show or change a topic's configs."""
    session.topic(name)
    changes: dict[str, str | None] = {**parse_configs(pairs), **dict.fromkeys(unset)}
    if changes:
        admin.alter_configs(session.cluster, TOPIC_RESOURCE, name, changes)
        if "compact" in (changes.get("cleanup.policy") or ""):
            text = (
                f"{name} is compacted from now on: the latest record of each key stays, "
                "records without a key go"
            )
            output.remark("note", text, as_json=session.as_json)
    configs = [
        each
        for each in admin.describe_configs(session.cluster, TOPIC_RESOURCE, name)
        if show_all or each.source == _OWN or each.name in changes
    ]
    if session.as_json:
        rows = [
            {
                "name": each.name,
                "value": each.value,
                "source": _SOURCES.get(each.source, str(each.source)),
            }
            for each in configs
        ]
        output.document({"topic": name, "changed": sorted(changes), "configs": rows})
    elif configs:
        output.table(
            ["CONFIG", "VALUE", "FROM"],
            [
                [each.name, each.value, _SOURCES.get(each.source, str(each.source))]
                for each in sorted(configs)
            ],
        )
    else:
        output.note(f"all configs of {name} are default; see them with --all")


@topic.command("add-partitions", epilog=examples("headwater topic add-partitions orders 12"))
@click.argument("name", metavar="TOPIC")
@click.argument("total", type=Number(1))
@with_session
def add_partitions(*, session: Session, name: str, total: int) -> None:
    """Grow a topic to TOTAL partitions.

    Records stay where they are. New records of a key may go to another partition than its old
    ones, so their order is lost across the change.
    """
    before = len(session.topic(name).partitions)
    if total <= before:
        raise CommandError(
            Exit.IN_THE_WAY,
            "INVALID_PARTITIONS",
            f"topic {name!r} has {output.count(before, 'partition')} and cannot shrink",
            hint=f"name a larger total: headwater topic add-partitions {name} {before + 1}",
        )
    admin.add_partitions(session.cluster, name, total)
    session.tell(
        {"topic": name, "partitions": total, "before": before},
        f"{name}: {before} -> {output.count(total, 'partition')}",
    )


# --- destroying ---------------------------------------------------------------------------------


@topic.command("rm", epilog=examples("headwater topic rm orders", "headwater topic rm a b --yes"))
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@_yes
@with_session
def remove(*, session: Session, names: tuple[str, ...], yes: bool) -> None:
    """Delete topics with all their records."""
    leave_internal_alone(*names)
    topics = [session.topic(name) for name in names]
    places = _places(*topics)
    first = admin.list_offsets(session.cluster, dict.fromkeys(places, EARLIEST))
    end = admin.list_offsets(session.cluster, dict.fromkeys(places, LATEST))
    records = sum(end[place] - first[place] for place in places)
    want_yes(
        given=yes,
        what=f"This deletes {', '.join(names)} with {output.count(records, 'record')}.",
    )
    for name in names:
        admin.delete_topic(session.cluster, name)
        if not session.as_json:
            output.say(f"{name}: deleted")
    if session.as_json:
        output.document({"topics": [{"topic": name, "deleted": True} for name in names]})


@topic.command(
    epilog=examples(
        "headwater topic trim orders --before -7d          # says what would go",
        "headwater topic trim orders --before 120000 -p 0 --yes",
        "headwater topic trim orders --before end --yes    # empties the topic",
    )
)
@click.argument("name", metavar="TOPIC")
@click.option(
    "--before",
    metavar="WHEN",
    required=True,
    help="Records below this go: end, -7d, a time, an offset.",
)
@click.option("-p", "--partition", metavar="N", type=Number(0), help="Only this partition.")
@_yes
@with_session
def trim(*, session: Session, name: str, before: str, partition: int | None, yes: bool) -> None:
    """Remove the oldest records of a topic."""
    leave_internal_alone(name)
    places = positions.places_of(session.topic(name), partition)
    bound = positions.parse(before)
    first = admin.list_offsets(session.cluster, dict.fromkeys(places, EARLIEST))
    targets = positions.resolve(session.cluster, places, bound).offsets
    rows = [
        {
            "partition": place[1],
            "first_offset": first[place],
            "new_first_offset": targets[place],
            "records": targets[place] - first[place],
        }
        for place in places
    ]
    removed = sum(row["records"] for row in rows)
    if yes and removed:
        admin.delete_records(session.cluster, targets)
    if session.as_json:
        output.document({"topic": name, "done": yes, "records": removed, "partitions": rows})
        return
    output.table(
        ["PARTITION", "FIRST", "NEW FIRST", "RECORDS"], [list(row.values()) for row in rows]
    )
    if not yes:
        output.note(f"{output.count(removed, 'record')} would go; do it with --yes")
