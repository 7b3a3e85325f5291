"""kafka-python, driven by the tests.

This file alone decides how the tests' calls are said in this client's words.
"""

import time
import uuid
from typing import Any

from kafka import (
    ConsumerRebalanceListener,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.admin import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    OffsetSpec,
    OffsetTimestamp,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import BrokerResponseError, CommitFailedError, GroupIdNotFoundError

from tests.interop.programs.lines import (
    METADATA_MS,
    PATIENCE_S,
    Fields,
    Report,
    described,
    event,
    serve,
    told_to_close,
    unpacked,
    unpacked_headers,
)

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def code_of(error: BaseException) -> int | None:
    """Find Kafka's number of an error."""
    return error.errno if isinstance(error, BrokerResponseError) else None


def produce(
    bootstrap: str,
    topic: str,
    records: list[Fields],
    codec: str = "none",
    acks: str = "all",
    *,
    idempotent: bool = False,
    settings: Fields | None = None,
) -> list[list[int]]:
    """Send all records, then wait for all answers."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        acks=acks if acks == "all" else int(acks),
        enable_idempotence=idempotent,
        linger_ms=20,
        **(settings or {}),
    )
    try:
        sent = [
            producer.send(
                topic,
                value=unpacked(record["value"]),
                key=unpacked(record["key"]),
                headers=unpacked_headers(record),
                partition=record["partition"],
                timestamp_ms=record["timestamp"],
            )
            for record in records
        ]
        answers = [each.get(timeout=PATIENCE_S) for each in sent]
        return [[each.partition, each.offset] for each in answers]
    finally:
        producer.close()


def open_consumer(bootstrap: str, **settings: object) -> Any:  # noqa: ANN401 - untyped library
    """Make a consumer that commits nothing by itself."""
    return KafkaConsumer(bootstrap_servers=bootstrap, **{"enable_auto_commit": False, **settings})


def consume(
    bootstrap: str,
    topics: list[str],
    isolation: str = "read_uncommitted",
    fetch_max_bytes: int | None = None,
) -> dict[str, list[Fields]]:
    """Read every partition from its beginning to its end."""
    settings: Fields = {"isolation_level": isolation, "auto_offset_reset": "earliest"}
    if fetch_max_bytes is not None:
        settings |= {
            "fetch_max_bytes": fetch_max_bytes,
            "max_partition_fetch_bytes": fetch_max_bytes,
        }
    consumer = open_consumer(bootstrap, **settings)
    try:
        return _read_all(consumer, topics)
    finally:
        consumer.close()


def _read_all(consumer: KafkaConsumer, topics: list[str]) -> dict[str, list[Fields]]:
    found: dict[str, list[Fields]] = {topic: [] for topic in topics}
    places = [
        TopicPartition(topic, partition)
        for topic in topics
        for partition in consumer.partitions_for_topic(topic)
    ]
    ends = {place: end for place, end in consumer.end_offsets(places).items() if end}
    consumer.assign(list(ends))
    end_s = time.monotonic() + PATIENCE_S
    while ends and time.monotonic() < end_s:
        for place, messages in consumer.poll(timeout_ms=500).items():
            found[place.topic] += [_described(message) for message in messages]
            if messages[-1].offset + 1 >= ends.get(place, 0):
                ends.pop(place, None)
    return found


def _described(message: Any) -> Fields:  # noqa: ANN401 - untyped library
    return described(
        message.partition,
        message.offset,
        message.timestamp,
        (message.key, message.value),
        message.headers,
    )


def tail(bootstrap: str, topic: str, max_wait_ms: int) -> Fields:
    """Wait for the next record of partition 0."""
    consumer = open_consumer(bootstrap, fetch_max_wait_ms=max_wait_ms)
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_end()
        return _described(_first(consumer))
    finally:
        consumer.close()


def _first(consumer: KafkaConsumer) -> Any:  # noqa: ANN401 - untyped library
    messages = consumer.poll(timeout_ms=int(PATIENCE_S * 1_000), max_records=1)
    assert messages, "nothing came"
    return next(iter(messages.values()))[0]


class _Teller(ConsumerRebalanceListener):  # type: ignore[misc] # untyped library
    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        event("assigned", partitions=[each.partition for each in assigned])

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        event("revoked", partitions=[each.partition for each in revoked])


def member(
    bootstrap: str,
    group: str,
    topic: str,
    session_ms: int,
    heartbeat_ms: int,
    assignor: str = "range",
    instance_id: str | None = None,
) -> None:
    """Be a member of a group until told to close."""
    consumer = open_consumer(
        bootstrap,
        group_id=group,
        group_instance_id=instance_id,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        partition_assignment_strategy=(ASSIGNORS[assignor],),
        auto_offset_reset="earliest",
        fetch_max_wait_ms=200,
        metadata_max_age_ms=METADATA_MS,
    )
    consumer.subscribe([topic], listener=_Teller())
    while not told_to_close():
        # A poll that ends between JoinGroup and SyncGroup loses the assignment, in 3.0.12.
        batches = consumer.poll(timeout_ms=3_000)
        messages = [message for batch in batches.values() for message in batch]
        if messages:
            read = [[each.partition, each.offset, each.value.decode()] for each in messages]
            event("records", records=read)
            try:
                consumer.commit()
            except (CommitFailedError, BrokerResponseError) as error:
                # The group has moved on: whoever has the partition now will read these again.
                event("commit refused", code=code_of(error))
    consumer.close()
    event("closed")


def offsets(bootstrap: str, topic: str, group: str, base_ms: int) -> Fields:
    """Commit, look up, seek and reset."""
    report = Report()
    place = TopicPartition(topic, 0)
    note = "read to four, ü"
    first = open_consumer(bootstrap, group_id=group)
    first.assign([place])
    report["committed at first"] = first.committed(place)
    first.commit({place: OffsetAndMetadata(4, note, -1)})
    report["committed"] = first.committed(place)
    report["metadata"] = first.committed(place, metadata=True).metadata
    first.close()
    second = open_consumer(bootstrap, group_id=group)
    second.assign([place])
    report["resumed at"] = _first(second).offset
    second.seek(place, 7)
    report["sought"] = _first(second).offset
    report["beginning"] = second.beginning_offsets([place])[place]
    report["end"] = second.end_offsets([place])[place]
    for step, time_ms in (("by time", base_ms + 2_500), ("after the last", base_ms + 999_000)):
        answer = second.offsets_for_times({place: time_ms})[place]
        report[step] = answer and answer.offset
    second.close()
    for reset in ("earliest", "latest"):
        fresh = open_consumer(bootstrap, group_id=uuid.uuid4().hex, auto_offset_reset=reset)
        fresh.assign([place])
        report[reset] = fresh.position(place)
        if reset == "earliest":
            fresh.seek(place, 1_000)
            report["out of range"] = _first(fresh).offset
        fresh.close()
    picky = open_consumer(bootstrap, group_id=uuid.uuid4().hex, auto_offset_reset="none")
    picky.assign([place])
    report.refusal("none", code_of, lambda: _first(picky))
    picky.close()
    return report


_transactional: dict[str, Any] = {}


def transaction(step: str, name: str, **arguments: Any) -> None:  # noqa: ANN401 - as the step has them
    """Do one step with a transactional producer, which lives on under its name."""
    match step:
        case "open":
            producer = KafkaProducer(
                bootstrap_servers=arguments["bootstrap"],
                transactional_id=arguments["transactional_id"],
                transaction_timeout_ms=arguments["timeout_ms"],
            )
            producer.init_transactions()
            _transactional[name] = producer
        case "begin":
            _transactional[name].begin_transaction()
        case "write":
            sent = [
                _transactional[name].send(arguments["topic"], value.encode(), partition=0)
                for value in arguments["values"]
            ]
            for each in sent:
                each.get(timeout=PATIENCE_S)
        case "commit":
            _transactional[name].commit_transaction()
        case "abort":
            _transactional[name].abort_transaction()
        case "close":
            _transactional.pop(name).close(timeout=1)


def relay(
    bootstrap: str,
    transactional_id: str,
    group: str,
    source: str,
    target: str,
    count: int,
    *,
    commit: bool,
) -> None:
    """Read records as a member of a group and write them on, with their offsets, as one step."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    producer.init_transactions()
    consumer = open_consumer(
        bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    consumer.subscribe([source])
    producer.begin_transaction()
    done = 0
    while done < count:
        # A poll that ends between JoinGroup and SyncGroup loses the assignment, in 3.0.12.
        for messages in consumer.poll(timeout_ms=3_000, max_records=count - done).values():
            for message in messages:
                producer.send(target, message.value, partition=0)
                done += 1
    positions = {
        place: OffsetAndMetadata(consumer.position(place), "", -1)
        for place in consumer.assignment()
    }
    producer.send_offsets_to_transaction(positions, consumer.group_metadata())
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    producer.close()
    consumer.close()


def admin(bootstrap: str, topic: str, data: str, group: str, base_ms: int) -> Fields:
    """Call everything an administrator can."""
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    report = Report()
    try:
        _admin_topics(client, report, topic)
        _admin_configs(client, report, topic)
        _admin_data(client, report, data, base_ms)
        _admin_groups(client, report, data, group)
        client.delete_topics([topic])
        report["deleted"] = topic not in client.list_topics()
        report.refusal("delete again", code_of, lambda: client.delete_topics([topic]))
    finally:
        client.close()
    return report


def _admin_topics(client: KafkaAdminClient, report: Report, topic: str) -> None:
    cluster = client.describe_cluster()
    report["cluster"] = [
        len(cluster["brokers"]),
        cluster["controller_id"],
        cluster["cluster_id"],
    ]

    def create(name: str, **configs: str) -> None:
        client.create_topics({name: {"num_partitions": 3, "configs": configs}})

    def count() -> int:
        return len(client.describe_topics([topic])[0]["partitions"])

    create(topic, **{"retention.ms": "7200000"})
    report["created"] = count()
    report["listed"] = topic in client.list_topics()
    report.refusal("create again", code_of, lambda: create(topic))
    report.refusal("bad name", code_of, lambda: create("no/slash"))
    report.refusal(
        "bad config", code_of, lambda: create(topic + "-x", **{"retention.ms": "banana"})
    )
    client.create_partitions({topic: 5})
    report["grown"] = count()
    report.refusal("shrunk", code_of, lambda: client.create_partitions({topic: 2}))


def _admin_configs(client: KafkaAdminClient, report: Report, topic: str) -> None:
    def values(kind: ConfigResourceType, name: str) -> dict[str, str]:
        resource = ConfigResource(kind, name)
        found = client.describe_configs([resource], config_filter=ConfigFilterType.ALL)
        (by_name,) = found.values()
        return {key: entry["value"] for key, entry in by_name[name].items()}

    def alter(*, incremental: bool, **configs: object) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
        client.alter_configs([resource], incremental=incremental)

    report["config"] = values(ConfigResourceType.TOPIC, topic)["retention.ms"]
    alter(incremental=False, **{"retention.ms": "3600000", "segment.bytes": "1048576"})
    now = values(ConfigResourceType.TOPIC, topic)
    report["altered"] = [now["retention.ms"], now["segment.bytes"]]
    alter(
        incremental=True,
        **{
            "retention.ms": (AlterConfigOp.DELETE, None),
            "max.message.bytes": (AlterConfigOp.SET, "2000000"),
            "cleanup.policy": (AlterConfigOp.APPEND, "compact"),
        },
    )
    now = values(ConfigResourceType.TOPIC, topic)
    names = ("retention.ms", "segment.bytes", "max.message.bytes", "cleanup.policy")
    report["incremental"] = [now[name] for name in names]
    broker = values(ConfigResourceType.BROKER, "1")
    report["broker config"] = broker["auto.create.topics.enable"]


def _admin_data(client: KafkaAdminClient, report: Report, data: str, base_ms: int) -> None:
    place = TopicPartition(data, 0)
    specs = [
        OffsetSpec.EARLIEST,
        OffsetSpec.LATEST,
        OffsetSpec.MAX_TIMESTAMP,
        OffsetTimestamp(base_ms + 2_500),
    ]
    report["offsets"] = [
        client.list_partition_offsets({place: spec})[place].offset for spec in specs
    ]
    low = client.delete_records({place: 4})[place]["low_watermark"]
    earliest = client.list_partition_offsets({place: OffsetSpec.EARLIEST})[place].offset
    report["trimmed"] = [low, earliest]
    report.refusal("trim beyond", code_of, lambda: client.delete_records({place: 1_000}))
    dirs = client.describe_log_dirs([data])
    report["log dirs"] = any(
        part["partition_size"] > 0
        for node in dirs
        for folder in node["log_dirs"]
        for each in folder["topics"]
        for part in each["partitions"]
    )


def _admin_groups(client: KafkaAdminClient, report: Report, data: str, group: str) -> None:
    place = TopicPartition(data, 0)

    def listed() -> bool:
        return group in {each["group_id"] for each in client.list_groups()}

    def committed() -> dict[str, int]:
        found = client.list_group_offsets(group)[group]
        return {f"{each.topic}-{each.partition}": found[each].offset for each in found}

    def delete() -> None:
        outcome = client.delete_groups([group])[group]
        if outcome != "OK":
            raise GroupIdNotFoundError(outcome)

    report["group listed"] = listed()
    found = client.describe_groups([group])[group]
    report["group"] = [found["group_state"], len(found["members"])]
    report["group offsets"] = committed()
    client.alter_group_offsets(group, {place: OffsetAndMetadata(2, "", -1)})
    report["group moved"] = committed()
    client.delete_group_offsets(group, [place])
    report["group forgotten"] = committed()
    client.alter_group_offsets(group, {place: OffsetAndMetadata(2, "", -1)})
    delete()
    report["group deleted"] = not listed()
    report.refusal("delete group again", code_of, delete)


if __name__ == "__main__":
    serve(
        {
            "produce": produce,
            "consume": consume,
            "tail": tail,
            "member": member,
            "offsets": offsets,
            "admin": admin,
            "transaction": transaction,
            "relay": relay,
        },
        code_of,
    )
