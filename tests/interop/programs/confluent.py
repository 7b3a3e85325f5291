"""confluent-kafka (librdkafka), driven by the tests.

This file alone decides how the tests' calls are said in this client's words.
"""

import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined] # names it does not export
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

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

# librdkafka's own limit is below a record of a million bytes with its frame.
LIMITS = {"message.max.bytes": 1_048_576}


def code_of(error: BaseException) -> int | None:
    """Find Kafka's number of an error."""
    inner = error.args[0] if isinstance(error, KafkaException) else error
    return int(inner.code()) if isinstance(inner, KafkaError) else None


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
    config = {
        **LIMITS,
        "bootstrap.servers": bootstrap,
        "compression.type": codec,
        "acks": acks,
        "enable.idempotence": idempotent,
        "linger.ms": 20,
        **(settings or {}),
    }
    answers: list[list[int]] = [[-1, -1] for _ in records]
    failures: list[KafkaError] = []

    def noted(index: int) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                offset = message.offset()
                # librdkafka says "invalid offset" where no answer was asked for.
                place = -1 if offset is None or acks == "0" else offset
                answers[index] = [message.partition() or 0, place]

        return note

    producer = Producer(config)
    for index, record in enumerate(records):
        producer.produce(
            topic,
            value=unpacked(record["value"]),
            key=unpacked(record["key"]),
            partition=record["partition"],
            timestamp=record["timestamp"],
            headers=list(unpacked_headers(record)),
            on_delivery=noted(index),
        )
        producer.poll(0)
    left = producer.flush(PATIENCE_S)
    if failures:
        raise KafkaException(failures[0])
    assert left == 0, f"{left} records were never answered"
    return answers


def open_consumer(bootstrap: str, **settings: object) -> Consumer:
    """Make a consumer that says nothing of itself to the group."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            **settings,
        }
    )


def consume(
    bootstrap: str,
    topics: list[str],
    isolation: str = "read_uncommitted",
    fetch_max_bytes: int | None = None,
) -> dict[str, list[Fields]]:
    """Read every partition from its beginning to its end."""
    settings: Fields = {"isolation.level": isolation}
    if fetch_max_bytes is not None:
        settings |= {
            "fetch.max.bytes": fetch_max_bytes,
            "max.partition.fetch.bytes": fetch_max_bytes,
            "message.max.bytes": fetch_max_bytes,
        }
    consumer = open_consumer(bootstrap, **settings)
    try:
        return _read_all(consumer, topics)
    finally:
        consumer.close()


def _read_all(consumer: Consumer, topics: list[str]) -> dict[str, list[Fields]]:
    found: dict[str, list[Fields]] = {topic: [] for topic in topics}
    known = consumer.list_topics(timeout=PATIENCE_S).topics
    places = [TopicPartition(topic, p) for topic in topics for p in known[topic].partitions]
    ends = {}
    for place in places:
        low, high = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
        if high > low:
            ends[place.topic, place.partition] = high
    consumer.assign([TopicPartition(*key, OFFSET_BEGINNING) for key in ends])
    end_s = time.monotonic() + PATIENCE_S
    while ends and time.monotonic() < end_s:
        for message in consumer.consume(500, timeout=0.5):
            if message.error():
                raise KafkaException(message.error())
            record = _described(message)
            found[str(message.topic())].append(record)
            key = str(message.topic()), record["partition"]
            if record["offset"] + 1 >= ends.get(key, 0):
                ends.pop(key, None)
    return found


def _described(message: Message) -> Fields:
    headers: Any = message.headers()
    return described(
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        (message.key(), message.value()),
        headers,
    )


def tail(bootstrap: str, topic: str, max_wait_ms: int) -> Fields:
    """Wait for the next record of partition 0."""
    settings = {"fetch.wait.max.ms": max_wait_ms, "auto.offset.reset": "latest"}
    consumer = open_consumer(bootstrap, **settings)
    try:
        consumer.assign([TopicPartition(topic, 0)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "nothing came"
        if message.error():
            raise KafkaException(message.error())
        return _described(message)
    finally:
        consumer.close()


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
    settings: Fields = {
        "group.id": group,
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": heartbeat_ms,
        "partition.assignment.strategy": assignor,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 200,
        "topic.metadata.refresh.interval.ms": METADATA_MS,
    }
    if instance_id is not None:
        settings["group.instance.id"] = instance_id
    consumer = open_consumer(bootstrap, **settings)

    def tell(name: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        return lambda _, places: event(name, partitions=[each.partition for each in places])

    consumer.subscribe(
        [topic], on_assign=tell("assigned"), on_revoke=tell("revoked"), on_lost=tell("lost")
    )
    while not told_to_close():
        messages = consumer.consume(500, timeout=0.1)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
        if messages:
            read = [[m.partition(), m.offset(), (m.value() or b"").decode()] for m in messages]
            event("records", records=read)
            _commit(consumer)
    consumer.close()
    event("closed")


def _commit(consumer: Consumer) -> None:
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        # The group has moved on: whoever has the partition now will read these again.
        event("commit refused", code=code_of(error))


def offsets(bootstrap: str, topic: str, group: str, base_ms: int) -> Fields:
    """Commit, look up, seek and reset."""
    report = Report()
    place = TopicPartition(topic, 0)

    def joined(**settings: object) -> Consumer:
        return open_consumer(bootstrap, **{"group.id": group, **settings})

    def next_offset(consumer: Consumer, start: TopicPartition) -> int:
        consumer.assign([start])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error():
            raise KafkaException(message.error())
        return message.offset() or 0

    first = joined()
    report["committed at first"] = _committed(first, place)
    first.commit(
        offsets=[TopicPartition(topic, 0, 4, metadata="read to four, ü")], asynchronous=False
    )
    report["committed"] = _committed(first, place)
    report["metadata"] = first.committed([place], timeout=PATIENCE_S)[0].metadata
    first.close()
    second = joined()
    report["resumed at"] = next_offset(second, place)
    second.seek(TopicPartition(topic, 0, 7))
    message = second.poll(PATIENCE_S)
    assert message is not None
    report["sought"] = message.offset()
    report["beginning"], report["end"] = second.get_watermark_offsets(place, timeout=PATIENCE_S)
    for step, time_ms in (("by time", base_ms + 2_500), ("after the last", base_ms + 999_000)):
        asked = [TopicPartition(topic, 0, time_ms)]
        answer = second.offsets_for_times(asked, timeout=PATIENCE_S)[0].offset
        report[step] = None if answer == OFFSET_END else answer
    second.close()
    fresh = open_consumer(bootstrap, **{"auto.offset.reset": "earliest"})
    report["earliest"] = next_offset(fresh, place)
    report["out of range"] = next_offset(fresh, TopicPartition(topic, 0, 1_000))
    fresh.close()
    picky = open_consumer(bootstrap, **{"auto.offset.reset": "error"})
    report.refusal("none", code_of, lambda: next_offset(picky, place))
    picky.close()
    return report


def _committed(consumer: Consumer, place: TopicPartition) -> int | None:
    offset = consumer.committed([place], timeout=PATIENCE_S)[0].offset
    return None if offset < 0 else offset


_transactional: dict[str, Producer] = {}


def transaction(step: str, name: str, **arguments: Any) -> None:  # noqa: ANN401 - as the step has them
    """Do one step with a transactional producer, which lives on under its name."""
    match step:
        case "open":
            producer = Producer(
                {
                    "bootstrap.servers": arguments["bootstrap"],
                    "transactional.id": arguments["transactional_id"],
                    "transaction.timeout.ms": arguments["timeout_ms"],
                }
            )
            producer.init_transactions(PATIENCE_S)
            _transactional[name] = producer
        case "begin":
            _transactional[name].begin_transaction()
        case "write":
            failures: list[KafkaError] = []
            for value in arguments["values"]:
                _transactional[name].produce(
                    arguments["topic"],
                    value,
                    partition=0,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
            _transactional[name].flush(PATIENCE_S)
            if failures:
                raise KafkaException(failures[0])
        case "commit":
            _transactional[name].commit_transaction(PATIENCE_S)
        case "abort":
            _transactional[name].abort_transaction(PATIENCE_S)
        case "close":
            del _transactional[name]


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
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(PATIENCE_S)
    settings = {"group.id": group, "auto.offset.reset": "earliest"}
    consumer = open_consumer(bootstrap, **settings, **{"isolation.level": "read_committed"})
    consumer.subscribe([source])
    producer.begin_transaction()
    done = 0
    while done < count:
        for message in consumer.consume(count - done, PATIENCE_S):
            if message.error():
                raise KafkaException(message.error())
            producer.produce(target, message.value(), partition=0)
            done += 1
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)
    if commit:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.abort_transaction(PATIENCE_S)
    consumer.close()


def create(
    bootstrap: str, topic: str, partitions: int, configs: dict[str, str] | None = None
) -> None:
    """Create a topic."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(topic, partitions, 1, config=configs or {})])[topic].result()


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    """Give a topic more partitions."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_partitions([NewPartitions(topic, partitions)])[topic].result()


def topics(bootstrap: str) -> list[str]:
    """Name the topics."""
    return list(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics)


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Commit for a group without members."""
    consumer = open_consumer(bootstrap, **{"group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def admin(bootstrap: str, topic: str, data: str, group: str, base_ms: int) -> Fields:
    """Call everything an administrator can."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    report = Report()
    _admin_topics(client, report, topic)
    _admin_configs(client, report, topic)
    _admin_data(client, report, data, base_ms)
    _admin_groups(client, report, data, group)

    def delete() -> None:
        client.delete_topics([topic])[topic].result()

    delete()
    report["deleted"] = topic not in client.list_topics(timeout=PATIENCE_S).topics
    report.refusal("delete again", code_of, delete)
    return report


def _admin_topics(client: AdminClient, report: Report, topic: str) -> None:
    cluster = client.describe_cluster().result()
    report["cluster"] = [len(cluster.nodes), cluster.controller.id, cluster.cluster_id]

    def create(name: str, **config: str) -> None:
        client.create_topics([NewTopic(name, 3, 1, config=config)])[name].result()

    def grow(count: int) -> None:
        client.create_partitions([NewPartitions(topic, count)])[topic].result()

    def count() -> int:
        described_topic = client.describe_topics(TopicCollection([topic]))[topic].result()
        return len(described_topic.partitions)

    create(topic, **{"retention.ms": "7200000"})
    report["created"] = count()
    report["listed"] = topic in client.list_topics(timeout=PATIENCE_S).topics
    report.refusal("create again", code_of, lambda: create(topic))
    report.refusal("bad name", code_of, lambda: create("no/slash"))
    report.refusal(
        "bad config", code_of, lambda: create(topic + "-x", **{"retention.ms": "banana"})
    )
    grow(5)
    report["grown"] = count()
    report.refusal("shrunk", code_of, lambda: grow(2))


def _admin_configs(client: AdminClient, report: Report, topic: str) -> None:
    def values(kind: ResourceType, name: str) -> dict[str, str]:
        resource = ConfigResource(kind, name)
        entries = client.describe_configs([resource])[resource].result()
        return {key: entry.value for key, entry in entries.items()}

    report["config"] = values(ResourceType.TOPIC, topic)["retention.ms"]
    changed = ConfigResource(
        ResourceType.TOPIC,
        topic,
        set_config={"retention.ms": "3600000", "segment.bytes": "1048576"},
    )
    client.alter_configs([changed])[changed].result()
    now = values(ResourceType.TOPIC, topic)
    report["altered"] = [now["retention.ms"], now["segment.bytes"]]
    steps = [
        ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ConfigEntry("max.message.bytes", "2000000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=steps)
    client.incremental_alter_configs([changed])[changed].result()
    now = values(ResourceType.TOPIC, topic)
    names = ("retention.ms", "segment.bytes", "max.message.bytes", "cleanup.policy")
    report["incremental"] = [now[name] for name in names]
    report["broker config"] = values(ResourceType.BROKER, "1")["auto.create.topics.enable"]


def _admin_data(client: AdminClient, report: Report, data: str, base_ms: int) -> None:
    place = TopicPartition(data, 0)
    specs: Any = OffsetSpec

    def looked_up(spec: OffsetSpec) -> int:
        return int(client.list_offsets({place: spec})[place].result().offset)

    report["offsets"] = [
        looked_up(specs.earliest()),
        looked_up(specs.latest()),
        looked_up(specs.max_timestamp()),
        looked_up(specs.for_timestamp(base_ms + 2_500)),
    ]

    def trim(offset: int) -> int:
        upto = TopicPartition(data, 0, offset)
        return int(client.delete_records([upto])[upto].result().low_watermark)

    report["trimmed"] = [trim(4), looked_up(specs.earliest())]
    report.refusal("trim beyond", code_of, lambda: trim(1_000))


def _admin_groups(client: AdminClient, report: Report, data: str, group: str) -> None:
    def listed() -> bool:
        found = client.list_consumer_groups().result()
        assert not found.errors, found.errors
        return group in {each.group_id for each in found.valid}

    def committed() -> dict[str, int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        found = client.list_consumer_group_offsets(asked)[group].result()
        return {f"{each.topic}-{each.partition}": each.offset for each in found.topic_partitions}

    def delete() -> None:
        client.delete_consumer_groups([group])[group].result()

    report["group listed"] = listed()
    found = client.describe_consumer_groups([group])[group].result()
    report["group"] = [found.state.name.capitalize(), len(found.members)]
    report["group offsets"] = committed()
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(data, 0, 2)])
    client.alter_consumer_group_offsets([moved])[group].result()
    report["group moved"] = committed()
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
            "create": create,
            "grow": grow,
            "topics": topics,
            "commit": commit,
            "transaction": transaction,
            "relay": relay,
        },
        code_of,
    )
