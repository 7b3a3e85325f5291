"""`headwater dry-run`: what pipelines would do, shown, not done.

This file alone decides what a dry run shows and how it proves that nothing was written: by the
ends of the topics before and after.
"""

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from headwater.cli import output
from headwater.cli.options import Number, Session, examples, with_session
from headwater.cli.run import MASTER_OPTION, end_spark, prepare
from headwater.delivery.client import admin
from headwater.delivery.client.admin import LATEST
from headwater.delivery.client.cluster import Place
from headwater.streams.running.checkpoints import DEFAULT_DATA

if TYPE_CHECKING:
    from headwater.streams.running.sampling import Sample

_SAMPLE_WITHIN_S = 120.0


@click.command(
    "dry-run",
    epilog=examples(
        "headwater dry-run revenue.py",
        "headwater dry-run revenue.py:hourly --records 10000 --rows 50 --json",
    ),
)
@click.argument("file", metavar="FILE[:NAME]")
@MASTER_OPTION
@click.option(
    "--records", metavar="N", type=Number(1), default=1000, help="To read.  [default: 1000]"
)
@click.option("--rows", metavar="N", type=Number(0), default=10, help="To show.  [default: 10]")
@with_session
def dry_run(*, session: Session, file: str, master: str | None, records: int, rows: int) -> None:
    """Show the plan, the topics and a sample of the output of pipelines; write nothing.

    The sample is what the first records of the topics become in one batch.
    """
    prepare(session, master=master, data=DEFAULT_DATA)
    # Spark and what it needs are loaded by those alone who run something.
    from headwater.streams.running import definitions, sampling  # noqa: PLC0415

    path, name = definitions.split(file)
    group = f"headwater-dry-run-{uuid.uuid4().hex[:12]}"
    options = sampling.source_options(records, group)
    pipelines = definitions.load(path, name, source_options=options)
    reports = []
    try:
        for each in pipelines:
            before = _ends(session, each.topics())
            sample = sampling.take_sample(each, rows_max=rows, timeout_s=_SAMPLE_WITHIN_S)
            after = _ends(session, each.topics())
            reports.append(_report(sample, before, after))
            if not session.as_json:
                _print(reports[-1])
    finally:
        end_spark()
        if group in admin.list_groups(session.cluster):
            admin.delete_group(session.cluster, group)
    if session.as_json:
        output.document({"pipelines": reports})


def _ends(session: Session, topics: Iterable[str]) -> dict[Place, int]:
    known = session.cluster.topics()
    places = [
        (topic, number)
        for topic in topics
        if topic in known
        for number in range(len(known[topic].partitions))
    ]
    return admin.list_offsets(session.cluster, dict.fromkeys(places, LATEST)) if places else {}


def _report(
    sample: "Sample",
    before: dict[Place, int],
    after: dict[Place, int],
) -> dict[str, object]:
    present = {topic for topic, _ in before}
    return {
        "pipeline": sample.pipeline,
        "reads": sample.reads,
        "writes": [{"topic": topic, "exists": topic in present} for topic in sample.writes],
        "schema": sample.schema,
        "stateful": [each for each in sample.operators if each != "source"],
        "plan": sample.plan,
        "rows_read": sample.rows_read,
        "sample": [{name: _text(value) for name, value in row.items()} for row in sample.rows],
        "ends": [
            {"topic": topic, "partition": number, "before": offset, "after": after[topic, number]}
            for (topic, number), offset in sorted(before.items())
        ],
        "unchanged": before == after,
    }


def _text(value: object) -> object:
    """Return what JSON can hold: bytes as text where they are some, else as hex."""
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _print(report: dict[str, object]) -> None:
    writes, sample = report["writes"], report["sample"]
    assert isinstance(writes, list)
    assert isinstance(sample, list)
    reads, stateful = report["reads"], report["stateful"]
    assert isinstance(reads, list)
    assert isinstance(stateful, list)
    missing = [each["topic"] for each in writes if not each["exists"]]
    output.facts(
        {
            "pipeline": str(report["pipeline"]),
            "reads": ", ".join(reads) or None,
            "writes": ", ".join(each["topic"] for each in writes),
            "columns": str(report["schema"]),
            "keeps state": ", ".join(stateful) or None,
        }
    )
    output.say(f"\n{report['plan']}\n")
    if sample:
        heads = [name for name in sample[0] if any(row[name] is not None for row in sample)]
        output.table(
            [head.upper() for head in heads], [[str(row[head]) for head in heads] for row in sample]
        )
    output.note(f"{output.count(len(sample), 'row')} shown of a batch of {report['rows_read']:,}")
    for topic in missing:
        output.note(f"note: {topic} does not exist; make it with: headwater topic create {topic}")
    if report["unchanged"]:
        output.note("nothing was written: all topics end where they ended before")
    else:
        output.note("warning: somebody else has written to these topics meanwhile")
