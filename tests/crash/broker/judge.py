"""Holds a broker that has just started to all that was promised before.

This file alone decides how that is looked up. It asks over the wire what any client could ask; what
it was shown is a promise from then on.
"""

from collections.abc import Mapping

from headwater.base.errors import CorruptRecordError, ErrorCode
from headwater.base.record.batch import BatchHeader
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster, TopicInfo
from headwater.delivery.client.connection import Connection
from tests.crash.broker.administrator import NODE
from tests.crash.broker.promises import (
    SHRINKING,
    TRIMMED,
    Configs,
    Ledger,
    PartitionPromise,
    Place,
    TopicState,
)
from tests.crash.broker.wire import TIMEOUT_S, connect, fetch

_TOPIC_SOURCE = 1
_BROKER_SOURCE = 2


def judge(address: tuple[str, int], ledger: Ledger) -> None:
    """Compare everything; what does not agree is noted in the ledger."""
    bootstrap = f"{address[0]}:{address[1]}"
    with Cluster(bootstrap, client_id="judge", timeout_s=TIMEOUT_S) as cluster:
        _judge_metadata(cluster, ledger)
        _judge_offsets(cluster, ledger)
        with connect(address, "judge") as connection:
            _judge_logs(cluster, connection, ledger)


def _judge_metadata(cluster: Cluster, ledger: Ledger) -> None:
    found = {name: info for name, info in cluster.topics().items() if not info.internal}
    ledger.cluster_id = ledger.cluster_id or cluster.cluster_id
    ledger.expect(
        ledger.cluster_id == cluster.cluster_id,
        "metadata",
        f"the cluster was {ledger.cluster_id} and is {cluster.cluster_id}",
    )
    for name in sorted(set(found) | set(ledger.topics) | set(ledger.under_way)):
        _judge_topic(cluster, ledger, name, found.get(name))
    configs = _overrides(cluster, admin.BROKER_RESOURCE, NODE, _BROKER_SOURCE)
    allowed = {ledger.broker_configs, ledger.broker_configs_under_way}
    ledger.expect(configs in allowed, "metadata", f"broker configs are {configs}, not of {allowed}")
    ledger.broker_configs, ledger.broker_configs_under_way = configs, None


def _judge_topic(cluster: Cluster, ledger: Ledger, name: str, info: TopicInfo | None) -> None:
    candidates = [ledger.topics.get(name)]
    if name in ledger.under_way:
        candidates.append(ledger.under_way[name])
    if info is None:
        ledger.expect(None in candidates, "lost topic", f"{name} should be one of {candidates}")
        ledger.resolve(name, None)
        return
    configs = _overrides(cluster, admin.TOPIC_RESOURCE, name, _TOPIC_SOURCE)
    for state in candidates:
        if state is not None and _is(ledger, name, state, info, configs):
            ledger.resolve(name, state)
            ledger.identify(name, info.topic_id)
            return
    found = f"{len(info.partitions)} partitions, {dict(configs)}, {info.topic_id.hex()}"
    ledger.breach("metadata", f"{name} is {found}, not of {candidates}")


def _is(ledger: Ledger, name: str, state: TopicState, info: TopicInfo, configs: Configs) -> bool:
    known_id = ledger.ids.get((name, state.generation), info.topic_id)
    return (state.partitions, state.configs, known_id) == (
        len(info.partitions),
        configs,
        info.topic_id,
    )


def _overrides(cluster: Cluster, resource: int, name: str, source: int) -> Configs:
    configs = admin.describe_configs(cluster, resource, name)
    return frozenset(
        (config.name, config.value or "") for config in configs if config.source == source
    )


def _judge_offsets(cluster: Cluster, ledger: Ledger) -> None:
    committed: dict[str, Mapping[Place, int]] = {}
    for (group, place), promise in ledger.offsets.items():
        if group not in committed:
            committed[group] = admin.committed_offsets(cluster, group)
        found = committed[group].get(place)
        allowed = {promise.acknowledged, *promise.attempted}
        ledger.expect(
            found in allowed,
            "gone back",
            f"group {group} at {place} should be at one of {allowed} and is at {found}",
        )
        promise.acknowledged = found
        promise.attempted.clear()


def _judge_logs(cluster: Cluster, connection: Connection, ledger: Ledger) -> None:
    # Partitions that are missing are told of already, and cannot be asked for what was in them.
    there = cluster.topics()
    places = [
        (name, partition)
        for name, state in ledger.topics.items()
        for partition in range(state.partitions)
        if name in there and partition < len(there[name].partitions)
    ]
    # What is promised, before what is found: somebody may be writing all the time.
    promised = {place: _summary(ledger.promise(place)) for place in places}
    earliest = admin.list_offsets(cluster, dict.fromkeys(places, admin.EARLIEST))
    latest = admin.list_offsets(cluster, dict.fromkeys(places, admin.LATEST))
    for place in places:
        _judge_bounds(ledger, place, promised[place], earliest[place], latest[place])
        while not _judge_records(connection, ledger, place, earliest[place], latest[place]):
            earliest |= admin.list_offsets(cluster, {place: admin.EARLIEST})
        ledger.show_start(place, earliest[place])
        ledger.show_end(place, latest[place])


def _summary(promise: PartitionPromise) -> tuple[int, int, int]:
    return promise.start, max(promise.start_asked, promise.start), promise.end


def _judge_bounds(
    ledger: Ledger, place: Place, promised: tuple[int, int, int], earliest: int, latest: int
) -> None:
    start, start_max, end = promised
    if latest < end:
        acknowledged = ledger.promise(place).acknowledged
        lost = sum(latest <= offset < end for offset in acknowledged)
        ledger.counts["lost"] += lost
        ledger.breach(
            "lost", f"{place} ended at {end} and ends at {latest}; {lost} were acknowledged"
        )
    habit = ledger.topics[place[0]].habit
    highest = {TRIMMED: start_max, SHRINKING: latest}.get(habit, 0)
    ledger.expect(
        start <= earliest,
        "gone back",
        f"{place} started at {start} and starts at {earliest}",
    )
    ledger.expect(earliest <= highest, "lost", f"{place} starts at {earliest}, behind {highest}")


def _judge_records(
    connection: Connection, ledger: Ledger, place: Place, earliest: int, latest: int
) -> bool:
    """Read a partition from end to end; false where it was cut meanwhile, as some may be."""
    position = earliest
    before: BatchHeader | None = None
    while position < latest:
        (fetched,) = fetch(connection, {place: position}, wait_ms=0)
        try:
            batches = list(fetched.batches())
        except CorruptRecordError as error:
            _lose(ledger, place, position, error.message)
            return True
        is_shrinking = ledger.topics[place[0]].habit == SHRINKING
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE and is_shrinking:
            return False
        if fetched.error or not batches:
            problem = f"up to {latest}: {fetched.error.name} with {len(batches)} batches"
            _lose(ledger, place, position, problem)
            return True
        for header, batch in batches:
            follows = (
                header.base_offset <= earliest
                if before is None
                else header.base_offset == before.next_offset
                and header.leader_epoch >= before.leader_epoch
            )
            ledger.expect(
                follows and header.next_offset > position,
                "lost",
                f"{place}: {header} follows {before}",
            )
            ledger.show(place, header, batch)
            before = header
            position = max(header.next_offset, position + 1)
    return True


def _lose(ledger: Ledger, place: Place, position: int, why: str) -> None:
    """Note that a partition cannot be read from an offset on."""
    ledger.counts["lost"] += sum(
        offset >= position for offset in ledger.promise(place).acknowledged
    )
    ledger.breach("lost", f"{place} from {position} on: {why}")
