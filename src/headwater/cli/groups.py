"""`headwater group`: consumer groups, their lag and their offsets.

This file alone decides what people can ask of and do to groups. Moving a group shows what would
happen and happens only with --apply.
"""

from collections.abc import Mapping

import click

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.spelling import nearest
from headwater.cli import lag, output, positions
from headwater.cli.errors import CommandError, Exit
from headwater.cli.options import Session, examples, want_yes, with_session
from headwater.delivery.client import admin
from headwater.delivery.client.admin import EARLIEST, LATEST, GroupInfo
from headwater.delivery.client.cluster import Place

_HOUR_MS = 3_600_000
_HAS_NOBODY = {"Empty", "Dead"}


@click.group(
    epilog=examples(
        "headwater group ls",
        "headwater group describe billing",
        "headwater group seek billing --to -1h --apply",
    )
)
def group() -> None:
    """Show consumer groups and their lag; move and delete them."""


def _describe(session: Session, name: str) -> GroupInfo:
    try:
        return admin.describe_group(session.cluster, name)
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        raise _not_found(session, name) from error


def _not_found(session: Session, name: str) -> CommandError:
    close = nearest(name, admin.list_groups(session.cluster))
    message = f"group {name!r} not found" + (f" - did you mean {close!r}?" if close else "")
    hint = "see all groups with: headwater group ls"
    return CommandError(Exit.NOT_FOUND, "GROUP_NOT_FOUND", message, hint=hint)


def _assignments(info: GroupInfo) -> dict[Place, admin.GroupMember]:
    return {place: member for member in info.members for place in member.partitions}


# --- looking ------------------------------------------------------------------------------------


@group.command("ls", epilog=examples("headwater group ls", "headwater group ls --json"))
@with_session
def list_groups(*, session: Session) -> None:
    """List groups with their lag."""
    rows: list[dict[str, str | int | None]] = []
    for name, state in sorted(admin.list_groups(session.cluster).items()):
        try:
            info = admin.describe_group(session.cluster, name)
        except KafkaError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            # Share and streams groups are described by other means, or it has just gone.
            rows.append(
                {"group": name, "state": state, "members": None, "topics": None, "lag": None}
            )
            continue
        committed = admin.committed_offsets(session.cluster, name)
        held = {*committed, *_assignments(info)}
        rows.append(
            {
                "group": name,
                "state": info.state,
                "members": len(info.members),
                "topics": len({topic for topic, _ in held}),
                "lag": _lag_records(session, committed, held),
            }
        )
    if session.as_json:
        output.document({"groups": rows})
    elif rows:
        output.table(
            ["GROUP", "STATE", "MEMBERS", "TOPICS", "LAG"], [list(row.values()) for row in rows]
        )
    else:
        output.note("no groups yet; a consumer makes one: headwater tail TOPIC --group NAME")


def _lag_records(session: Session, committed: Mapping[Place, int], held: set[Place]) -> int:
    topics = session.cluster.topics()
    places = [
        (topic, number)
        for topic, number in held
        if topic in topics and number < len(topics[topic].partitions)
    ]
    first = admin.list_offsets(session.cluster, dict.fromkeys(places, EARLIEST))
    end = admin.list_offsets(session.cluster, dict.fromkeys(places, LATEST))
    return sum(max(0, end[at] - max(first[at], committed.get(at, 0))) for at in places)


@group.command(
    epilog=examples("headwater group describe billing", "headwater group describe billing --json")
)
@click.argument("name", metavar="GROUP")
@with_session
def describe(*, session: Session, name: str) -> None:
    """Show a group's members and its lag.

    Lag is told in records, in bytes (estimated from the partition's size), and in the time until
    the oldest unread record is removed by retention.
    """
    info = _describe(session, name)
    owners = _assignments(info)
    committed = admin.committed_offsets(session.cluster, name)
    lags = lag.measure(session.cluster, committed, owners)
    if session.as_json:
        output.document(_as_document(info, owners, lags))
        return
    output.facts(
        {
            "group": name,
            "state": info.state,
            "assignor": info.protocol or None,
            "members": len(info.members),
            "lag": output.count(sum(each.lag_records for each in lags), "record"),
        }
    )
    if lags:
        output.say("")
        _print_lags(lags, owners)
    if info.members:
        output.say("")
        output.table(
            ["MEMBER", "CLIENT", "HOST", "PARTITIONS"],
            [
                [
                    member.instance_id or member.member_id,
                    member.client_id,
                    member.client_host,
                    sum(owner is member for owner in owners.values()),
                ]
                for member in info.members
            ],
        )


def _print_lags(lags: list[lag.PartitionLag], owners: Mapping[Place, admin.GroupMember]) -> None:
    output.table(
        ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LAG SIZE", "REMOVED IN", "CLIENT"],
        [
            [
                each.topic,
                each.partition,
                each.committed,
                each.end,
                each.lag_records,
                output.bytes_text(each.lag_bytes),
                _time_left(each),
                owners[each.topic, each.partition].client_id
                if (each.topic, each.partition) in owners
                else None,
            ]
            for each in lags
        ],
    )
    for each in lags:
        if each.lost_records:
            output.note(
                f"warning: {each.topic}-{each.partition} begins at {each.first}: "
                f"{output.count(each.lost_records, 'offset')} were removed before they were read"
            )
        if each.at_risk:
            output.note(
                f"warning: {each.topic}-{each.partition} is about to lose unread records by "
                f"{each.removed_by}: read faster, or keep them longer with "
                f"headwater topic config {each.topic} {each.removed_by}=..."
            )


def _time_left(each: lag.PartitionLag) -> str | None:
    if each.hours_left is None:
        return None
    if each.hours_left == 0:
        return "any moment"
    return output.duration_text(each.hours_left * _HOUR_MS)


def _as_document(
    info: GroupInfo,
    owners: Mapping[Place, admin.GroupMember],
    lags: list[lag.PartitionLag],
) -> dict[str, object]:
    return {
        "group": info.group,
        "state": info.state,
        "assignor": info.protocol,
        "lag_records": sum(each.lag_records for each in lags),
        "lag_bytes": sum(each.lag_bytes for each in lags),
        "partitions": [
            {
                **each._asdict(),
                "member": owners[each.topic, each.partition].member_id
                if (each.topic, each.partition) in owners
                else None,
            }
            for each in lags
        ],
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.client_host,
                "partitions": [
                    {"topic": topic, "partition": number}
                    for (topic, number), owner in sorted(owners.items())
                    if owner is member
                ],
            }
            for member in info.members
        ],
    }


# --- moving and deleting ------------------------------------------------------------------------


@group.command(
    epilog=examples(
        "headwater group seek billing --to beginning            # says what would change",
        "headwater group seek billing --to -1h --apply",
        "headwater group seek billing --to 2026-11-15T10:00 --topic orders --apply",
        "headwater group seek billing --by -100 --topic orders:0 --apply",
    )
)
@click.argument("name", metavar="GROUP")
@click.option("--to", "target", metavar="WHERE", help=f"{positions.FORMS}.")
@click.option("--by", "shift", metavar="N", type=int, help="So many records on, or back: -100.")
@click.option(
    "-t",
    "--topic",
    "wanted",
    metavar="TOPIC[:PARTITION]",
    multiple=True,
    help="Only there.  [default: wherever the group has committed]",
)
@click.option("--apply", is_flag=True, help="Do it; otherwise only say what would change.")
@with_session
def seek(
    *,
    session: Session,
    name: str,
    target: str | None,
    shift: int | None,
    wanted: tuple[str, ...],
    apply: bool,
) -> None:
    """Move a group to another place; nobody may be in it meanwhile."""
    if (target is None) == (shift is None):
        raise click.UsageError("say where: either --to or --by")
    committed = admin.committed_offsets(session.cluster, name)
    places = _chosen(session, wanted) or sorted(committed)
    if not places:
        raise _not_found(session, name)
    if apply:
        _want_nobody_in(session, name)
    if target is not None:
        resolved = positions.resolve(session.cluster, places, positions.parse(target))
    else:
        assert shift is not None
        resolved = positions.shift(session.cluster, places, committed, shift)
    if apply:
        admin.commit_offsets(session.cluster, name, resolved.offsets)
    left_alone = [] if wanted else _uncommitted(session, committed)
    _tell_seek(session, name, committed, resolved, left_alone, applied=apply)


def _uncommitted(session: Session, committed: Mapping[Place, int]) -> list[Place]:
    """Return the partitions of the group's topics in which it has never committed anything."""
    known = session.cluster.topics()
    topics = sorted({topic for topic, _ in committed} & set(known))
    places = [place for topic in topics for place in positions.places_of(known[topic])]
    return [place for place in places if place not in committed]


def _chosen(session: Session, wanted: tuple[str, ...]) -> list[Place]:
    places: list[Place] = []
    for each in wanted:
        topic, colon, number = each.rpartition(":")
        if colon and number.isdecimal():
            places += positions.places_of(session.topic(topic), int(number))
        else:
            places += positions.places_of(session.topic(each))
    return places


def _want_nobody_in(session: Session, name: str) -> None:
    try:
        info = admin.describe_group(session.cluster, name)
    except KafkaError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if info.state not in _HAS_NOBODY:
        raise CommandError(
            Exit.IN_THE_WAY,
            "NON_EMPTY_GROUP",
            f"group {name!r} has {output.count(len(info.members), 'member')} and cannot be moved",
            hint=f"stop its consumers first; who they are: headwater group describe {name}",
        )


def _tell_seek(
    session: Session,
    name: str,
    committed: Mapping[Place, int],
    resolved: positions.Resolved,
    left_alone: list[Place],
    *,
    applied: bool,
) -> None:
    rows = [
        {"topic": topic, "partition": number, "from": committed.get((topic, number)), "to": offset}
        for (topic, number), offset in sorted(resolved.offsets.items())
    ]
    if session.as_json:
        output.document(
            {
                "group": name,
                "applied": applied,
                "moved": resolved.moved,
                "partitions": rows,
                "left_alone": [
                    {"topic": topic, "partition": number} for topic, number in left_alone
                ],
            }
        )
        return
    output.table(
        ["TOPIC", "PARTITION", "FROM", "TO"],
        [[str(row["topic"]), *list(row.values())[1:]] for row in rows],
    )
    for moved in resolved.moved:
        output.note(f"note: {moved}")
    for topic in dict.fromkeys(topic for topic, _ in left_alone):
        numbers = ", ".join(str(number) for each, number in left_alone if each == topic)
        output.note(
            f"note: {topic} {numbers} left alone, nothing was ever committed there; "
            f"to move all of it: --topic {topic}"
        )
    if not applied:
        output.note("nothing was changed yet; do it with --apply")


@group.command("rm", epilog=examples("headwater group rm billing --yes"))
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do it without being asked.")
@with_session
def remove(*, session: Session, names: tuple[str, ...], yes: bool) -> None:
    """Delete groups with their offsets; nobody may be in them."""
    for name in names:
        info = _describe(session, name)
        if info.state not in _HAS_NOBODY:
            raise CommandError(
                Exit.IN_THE_WAY,
                "NON_EMPTY_GROUP",
                f"group {name!r} has {output.count(len(info.members), 'member')}",
                hint=f"stop its consumers first; who they are: headwater group describe {name}",
            )
    want_yes(given=yes, what=f"This deletes {', '.join(names)} with all committed offsets.")
    for name in names:
        admin.delete_group(session.cluster, name)
        if not session.as_json:
            output.say(f"{name}: deleted")
    if session.as_json:
        output.document({"groups": [{"group": name, "deleted": True} for name in names]})
