"""`headwater replay`: a range of a topic into a topic of its own.

This file alone decides what a replay keeps: key, value, headers, timestamp and, where the target
has as many partitions, the partition with its order. Only committed data is copied: a copy has no
transactions, so what was aborted or is still open would become real in it. The source is only read,
so an experiment on the copy risks nothing.
"""

import click

from headwater.base.record.codecs import Codec
from headwater.cli import output, positions
from headwater.cli.errors import CommandError, Exit
from headwater.cli.options import Number, Session, examples, parse_configs, with_session
from headwater.cli.progress import Progress
from headwater.cli.ranges import Predicate, RangeReader, condition
from headwater.delivery.client import admin
from headwater.delivery.client.admin import TOPIC_RESOURCE
from headwater.delivery.client.cluster import TopicInfo
from headwater.delivery.client.producer import Producer

# What of a source's configs shapes its records. Retention is not copied: old records would be
# removed again as soon as they arrive.
_COPIED = {"compression.type", "max.message.bytes", "flush.messages", "flush.ms", "segment.bytes"}
_KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}
_OWN = 1


@click.command(
    epilog=examples(
        "headwater replay orders --into orders.again                    # everything",
        "headwater replay orders --into last-hour --from -1h",
        "headwater replay orders --into noon --from 2026-11-15T12:00 --to 2026-11-15T13:00",
        "headwater replay orders --into big --where 'value.qty > 100'",
        "headwater replay orders --into orders.again --from 5000 --append",
    )
)
@click.argument("source", metavar="SOURCE")
@click.option("--into", "target", metavar="TOPIC", required=True, help="The topic to write to.")
@click.option("--from", "start", metavar="WHERE", default="beginning", help=f"{positions.FORMS}.")
@click.option("--to", "end", metavar="WHERE", default="end", help="The same forms.  [default: end]")
@click.option("-p", "--partition", metavar="N", type=Number(0), help="Only this partition.")
@click.option("--where", metavar="SQL", help="Only what this is true for, as in headwater tail.")
@click.option("--append", is_flag=True, help="Write to a topic that exists already.")
@click.option(
    "-c",
    "--config",
    "pairs",
    metavar="NAME=VALUE",
    multiple=True,
    help="A config of the new topic; it keeps everything unless told otherwise.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@with_session
def replay(  # noqa: PLR0913 - one argument per option
    *,
    session: Session,
    source: str,
    target: str,
    start: str,
    end: str,
    partition: int | None,
    where: str | None,
    append: bool,
    pairs: tuple[str, ...],
    quiet: bool,
) -> None:
    """Copy a range of SOURCE, by time or offset, into another topic.

    Keys, values, headers and timestamps are kept, and partitions where there are as many. Of
    transactions only what was committed is copied; the range ends before one that is still open.
    """
    if source == target:
        raise click.UsageError("a topic cannot be replayed into itself")
    predicate = condition(where)
    info = session.topic(source)
    places = positions.places_of(info, partition)
    to = positions.resolve_end(session.cluster, places, positions.parse(end), read_committed=True)
    starts = positions.resolve(session.cluster, places, positions.parse(start), read_committed=True)
    for moved in starts.moved + to.moved:
        output.remark("note", moved, as_json=session.as_json)
    _prepare_target(session, info, target, parse_configs(pairs), append=append)
    same_partitions = len(session.cluster.topic(target).partitions) == len(info.partitions)
    reader = RangeReader(
        session.cluster,
        starts.offsets,
        to.offsets,
        on_loss=lambda text: output.remark("warning", text, as_json=session.as_json),
    )
    try:
        copied = _copy(
            reader,
            Producer(session.cluster, codec=Codec.NONE),
            target,
            predicate,
            Progress(f"{source} -> {target}", unit="offsets", quiet=quiet),
            same_partitions=same_partitions,
        )
    except KeyboardInterrupt:
        part = f"interrupted: {target} holds only a part of the range"
        output.remark("warning", part, as_json=session.as_json)
        raise
    session.tell(
        {
            "source": source,
            "target": target,
            "scanned": reader.scanned,
            "copied": copied,
            "lost": reader.lost,
            "partitions_kept": same_partitions,
        },
        f"copied {output.count(copied, 'record')} of {reader.scanned:,} scanned "
        f"from {source} into {target}"
        + ("" if same_partitions else "; partitions by key, as their numbers differ"),
    )


def _prepare_target(
    session: Session, source: TopicInfo, target: str, configs: dict[str, str], *, append: bool
) -> None:
    exists = target in session.cluster.topics()
    if exists and not append:
        raise CommandError(
            Exit.IN_THE_WAY,
            "TOPIC_ALREADY_EXISTS",
            f"topic {target!r} exists already",
            hint="replay into a new topic, or add to this one with --append",
        )
    if exists:
        return
    own = {
        config.name: config.value
        for config in admin.describe_configs(session.cluster, TOPIC_RESOURCE, source.name)
        if config.source == _OWN and config.name in _COPIED and config.value is not None
    }
    admin.create_topic(
        session.cluster,
        target,
        partitions=len(source.partitions),
        configs={**own, **_KEEP_ALL, **configs},
    )


def _copy(
    reader: RangeReader,
    producer: Producer,
    target: str,
    predicate: Predicate | None,
    bar: Progress,
    *,
    same_partitions: bool,
) -> int:
    copied = 0
    total = reader.offsets_left
    try:
        while not reader.done:
            for message in reader.read():
                if predicate is not None and not predicate(message):
                    continue
                producer.send(
                    target,
                    message.value,
                    key=message.key,
                    headers=message.headers,
                    partition=message.partition if same_partitions else None,
                    timestamp_ms=message.timestamp_ms,
                )
                copied += 1
            bar.show(total - reader.offsets_left, total)
        producer.flush()
    finally:
        bar.close()
    return copied
