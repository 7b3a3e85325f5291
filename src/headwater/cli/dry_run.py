"""`headwater dry-run`: what pipelines would do, shown, not done.

This file alone decides what a dry run shows and how it proves that nothing was written: by the
ends of the topics before and after.
"""

import shutil
import sys
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from headwater.base.settings.places import DEFAULT_DATA
from headwater.cli import output
from headwater.cli.options import Number, Session, examples, with_session
from headwater.cli.run import MASTER_OPTION, end_spark, prepare
from headwater.delivery.client import admin
from headwater.delivery.client.admin import LATEST
from headwater.delivery.client.cluster import Place

if TYPE_CHECKING:
    from headwater.streams.running.plan_steps import Step
    from headwater.streams.running.sampling import Sample

_SAMPLE_WITHIN_S = 120.0
# However narrow the terminal is, so much of a step is told.
_TEXT_MIN = 20


@click.command(
    "dry-run",
    epilog=examples(
        "headwater dry-run revenue.py",
        "headwater dry-run revenue.py --plan        # and the plan in Spark's own words",
        "headwater dry-run revenue.py:hourly --records 10000 --rows 50 --json",
    ),
)
@click.argument("file", metavar="FILE[:NAME]")
@MASTER_OPTION
@click.option(
    "--records", metavar="N", type=Number(1), default=1000, help="To read.  [default: 1000]"
)
@click.option("--rows", metavar="N", type=Number(0), default=10, help="To show.  [default: 10]")
@click.option("--plan", is_flag=True, help="Show Spark's own plan too.")
@with_session
def dry_run(
    *, session: Session, file: str, master: str | None, records: int, rows: int, plan: bool
) -> None:
    """Show the steps, the topics and a sample of the output of pipelines; write nothing.

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
                _print(reports[-1], with_plan=plan, first=len(reports) == 1)
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
        "steps": [each._asdict() for each in _steps(sample)],
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


def _steps(sample: "Sample") -> list["Step"]:
    """Return the whole way of the data, with what is written at its end."""
    from headwater.streams.running.plan_steps import Step  # noqa: PLC0415 - as all that needs Spark

    topic, *aside = sample.writes
    written = [Step(0, "write", f"{topic}: {sample.written_as}")]
    written += [Step(0, "set aside", f"{each}: what cannot be decoded") for each in aside]
    return sample.steps + written


def _print(report: dict[str, object], *, with_plan: bool, first: bool) -> None:
    writes, sample, steps = report["writes"], report["sample"], report["steps"]
    assert isinstance(writes, list)
    assert isinstance(sample, list)
    assert isinstance(steps, list)
    if not first:
        output.say("")
    output.facts({"pipeline": str(report["pipeline"]), "columns": str(report["schema"])})
    output.say("")
    _print_steps(steps)
    if with_plan:
        output.say(f"\n{report['plan']}")
    if sample:
        output.say("")
        _print_rows(sample)
    output.note(
        f"\n{output.count(len(sample), 'row')} shown of a batch of "
        f"{output.count(int(str(report['rows_read'])), 'record')}"
    )
    if not sample and report["rows_read"] and report["stateful"]:
        output.note("note: what keeps state may give rows only when later records have come")
    for topic in (each["topic"] for each in writes if not each["exists"]):
        output.note(f"note: {topic} does not exist; make it with: headwater topic create {topic}")
    if report["unchanged"]:
        output.note("nothing was written: all topics end where they ended before")
    else:
        output.note("warning: somebody else has written to these topics meanwhile")


def _print_rows(rows: list[dict[str, object]]) -> None:
    """Print rows in as much room as there is; headers are for programs."""
    heads = [
        name for name in rows[0] if name != "headers" and any(row[name] is not None for row in rows)
    ]
    texts = [[_cell(row[head]) for head in heads] for row in rows]
    others = sum(
        max(len(head), *(len(row[place] or "-") for row in texts)) + 2
        for place, head in enumerate(heads)
        if head != "value"
    )
    room = max(shutil.get_terminal_size().columns - others, _TEXT_MIN)
    output.table(
        [head.upper() for head in heads],
        [[_cut(cell, room) if cell else None for cell in row] for row in texts],
    )


def _cell(value: object) -> str | None:
    return None if value is None else str(value)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 3]}..."


def _print_steps(steps: list[dict[str, object]]) -> None:
    """Print a step on a line, as wide as the terminal; what is joined stands to the right."""
    columns = shutil.get_terminal_size().columns
    width = max(len(str(each["verb"])) for each in steps)
    for each in steps:
        indent = "  " * int(str(each["depth"]))
        state = "  (keeps state)" if each["keeps_state"] else ""
        room = max(columns - len(indent) - width - 2 - len(state), _TEXT_MIN)
        verb = output.paint(str(each["verb"]).ljust(width), "bold", sys.stdout)
        mark = output.paint(state, "dim", sys.stdout) if state else ""
        output.say(f"{indent}{verb}  {_cut(str(each['text']), room)}{mark}")
