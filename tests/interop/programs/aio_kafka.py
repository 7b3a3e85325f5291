"""aiokafka, driven by the tests.

This file alone decides how the tests' calls are said in this client's words. Each call runs in an
event loop of its own, but for transactional producers, which live on between calls.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import BrokerResponseError, CommitFailedError, for_code
from aiokafka.structs import OffsetAndMetadata

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


def code_of(error: BaseException) -> int | None:
    """Find Kafka's number of an error."""
    return error.errno if isinstance(error, BrokerResponseError) else None


def in_a_loop(operation: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """Make a plain function of a coroutine function."""
    return lambda **arguments: asyncio.run(operation(**arguments))


async def produce(
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
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        acks=acks if acks == "all" else int(acks),
        enable_idempotence=idempotent,
        linger_ms=20,
        **(settings or {}),
    )
    await producer.start()
    try:
        sent = [
            await producer.send(
                topic,
                value=unpacked(record["value"]),
                key=unpacked(record["key"]),
                partition=record["partition"],
                timestamp_ms=record["timestamp"],
                headers=unpacked_headers(record),
            )
            for record in records
        ]
        answers = await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)
        # Without an answer from the broker there is none from the client either.
        return [[each.partition, each.offset] if each else [-1, -1] for each in answers]
    finally:
        await producer.stop()


def new_consumer(bootstrap: str, *topics: str, **settings: object) -> Any:  # noqa: ANN401 - untyped library
    """Make a consumer that commits nothing by itself."""
    return AIOKafkaConsumer(
        *topics, bootstrap_servers=bootstrap, **{"enable_auto_commit": False, **settings}
    )


async def consume(
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
    consumer = new_consumer(bootstrap, *topics, **settings)
    await consumer.start()
    try:
        return await _read_all(consumer, topics)
    finally:
        await consumer.stop()


async def _read_all(consumer: AIOKafkaConsumer, topics: list[str]) -> dict[str, list[Fields]]:
    found: dict[str, list[Fields]] = {topic: [] for topic in topics}
    places = consumer.assignment()
    ends = {place: end for place, end in (await consumer.end_offsets(places)).items() if end}
    end_s = time.monotonic() + PATIENCE_S
    while ends and time.monotonic() < end_s:
        for place, messages in (await consumer.getmany(timeout_ms=500)).items():
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


async def tail(bootstrap: str, topic: str, max_wait_ms: int) -> Fields:
    """Wait for the next record of partition 0."""
    consumer = new_consumer(bootstrap, fetch_max_wait_ms=max_wait_ms, auto_offset_reset="latest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        return _described(await asyncio.wait_for(consumer.getone(), PATIENCE_S))
    finally:
        await consumer.stop()


class _Teller(ConsumerRebalanceListener):  # type: ignore[misc] # untyped library
    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        event("assigned", partitions=[each.partition for each in assigned])

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        event("revoked", partitions=[each.partition for each in revoked])


async def member(
    bootstrap: str,
    group: str,
    topic: str,
    session_ms: int,
    heartbeat_ms: int,
    instance_id: str | None = None,
    assignor: str = "range",
) -> None:
    """Be a member of a group until told to close."""
    assert assignor == "range", "aiokafka has no cooperative assignor"
    consumer = new_consumer(
        bootstrap,
        group_id=group,
        group_instance_id=instance_id,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        partition_assignment_strategy=(RangePartitionAssignor,),
        auto_offset_reset="earliest",
        fetch_max_wait_ms=200,
        metadata_max_age_ms=METADATA_MS,
    )
    consumer.subscribe([topic], listener=_Teller())
    await consumer.start()
    while not told_to_close():
        batches = await consumer.getmany(timeout_ms=100)
        messages = [message for batch in batches.values() for message in batch]
        if messages:
            read = [[each.partition, each.offset, each.value.decode()] for each in messages]
            event("records", records=read)
            try:
                await consumer.commit()
            except (CommitFailedError, BrokerResponseError) as error:
                # The group has moved on: whoever has the partition now will read these again.
                event("commit refused", code=code_of(error))
    await consumer.stop()
    event("closed")


async def offsets(bootstrap: str, topic: str, group: str, base_ms: int) -> Fields:
    """Commit, look up, seek and reset."""
    report = Report()
    place = TopicPartition(topic, 0)

    async def opened(**settings: object) -> Any:  # noqa: ANN401 - untyped library
        consumer = new_consumer(bootstrap, **settings)
        await consumer.start()
        consumer.assign([place])
        return consumer

    async def next_offset(consumer: AIOKafkaConsumer) -> int:
        message = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
        return int(message.offset)

    first = await opened(group_id=group)
    report["committed at first"] = await first.committed(place)
    await first.commit({place: OffsetAndMetadata(4, "read to four, ü")})
    report["committed"] = await first.committed(place)
    await first.stop()
    second = await opened(group_id=group)
    report["resumed at"] = await next_offset(second)
    second.seek(place, 7)
    report["sought"] = await next_offset(second)
    report["beginning"] = (await second.beginning_offsets([place]))[place]
    report["end"] = (await second.end_offsets([place]))[place]
    for step, time_ms in (("by time", base_ms + 2_500), ("after the last", base_ms + 999_000)):
        answer = (await second.offsets_for_times({place: time_ms}))[place]
        report[step] = answer and answer.offset
    await second.stop()
    for reset in ("earliest", "latest"):
        fresh = await opened(group_id=uuid.uuid4().hex, auto_offset_reset=reset)
        report[reset] = await fresh.position(place)
        if reset == "earliest":
            fresh.seek(place, 1_000)
            report["out of range"] = await next_offset(fresh)
        await fresh.stop()
    picky = await opened(group_id=uuid.uuid4().hex, auto_offset_reset="none")
    try:
        report["none"] = await next_offset(picky)
    except Exception as error:  # noqa: BLE001 - its name is what is looked at
        report["none"] = type(error).__name__
    await picky.stop()
    return report


def checked(responses: Any) -> Any:  # noqa: ANN401 - untyped library
    """Raise the first error of an answer: this client returns answers as they came."""
    for response in responses if isinstance(responses, list) else [responses]:
        fields = response.to_object()
        for name in ("topic_errors", "topic_error_codes", "resources"):
            for each in fields.get(name, ()):
                if each["error_code"]:
                    raise for_code(each["error_code"])
    return responses


async def admin(bootstrap: str, topic: str, data: str, group: str, base_ms: int) -> Fields:
    """Call everything this client's administrator can."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    report = Report()
    try:
        await _admin_topics(client, report, topic)
        await _admin_configs(client, report, topic)
        await _admin_data(client, report, data)
        await _admin_groups(client, report, group)
        checked(await client.delete_topics([topic]))
        report["deleted"] = topic not in await client.list_topics()
        await _refusal(report, "delete again", client.delete_topics([topic]))
    finally:
        await client.close()
    return report


async def _refusal(report: Report, step: str, call: Coroutine[Any, Any, Any]) -> None:
    try:
        report[step] = ["not refused", repr(checked(await call))]
    except BrokerResponseError as error:
        report[step] = code_of(error)


async def _admin_topics(client: AIOKafkaAdminClient, report: Report, topic: str) -> None:
    cluster = await client.describe_cluster()
    report["cluster"] = [
        len(cluster["brokers"]),
        cluster["controller_id"],
        cluster["cluster_id"],
    ]

    def create(name: str, **configs: str) -> Coroutine[Any, Any, Any]:
        coroutine: Coroutine[Any, Any, Any] = client.create_topics(
            [NewTopic(name, 3, 1, topic_configs=configs)]
        )
        return coroutine

    async def count() -> int:
        return len((await client.describe_topics([topic]))[0]["partitions"])

    checked(await create(topic, **{"retention.ms": "7200000"}))
    report["created"] = await count()
    report["listed"] = topic in await client.list_topics()
    await _refusal(report, "create again", create(topic))
    await _refusal(report, "bad name", create("no/slash"))
    await _refusal(report, "bad config", create(topic + "-x", **{"retention.ms": "banana"}))
    await client.create_partitions({topic: NewPartitions(5)})
    report["grown"] = await count()
    await _refusal(report, "shrunk", client.create_partitions({topic: NewPartitions(2)}))


async def _admin_configs(client: AIOKafkaAdminClient, report: Report, topic: str) -> None:
    async def values(kind: ConfigResourceType, name: str) -> dict[str, str]:
        (answer,) = checked(await client.describe_configs([ConfigResource(kind, name)]))
        entries = answer.to_object()["resources"][0]["config_entries"]
        return {entry["config_names"]: entry["config_value"] for entry in entries}

    report["config"] = (await values(ConfigResourceType.TOPIC, topic))["retention.ms"]
    configs = {"retention.ms": "3600000", "segment.bytes": "1048576"}
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
    checked(await client.alter_configs([changed]))
    now = await values(ConfigResourceType.TOPIC, topic)
    report["altered"] = [now["retention.ms"], now["segment.bytes"]]
    broker = await values(ConfigResourceType.BROKER, "1")
    report["broker config"] = broker["auto.create.topics.enable"]


async def _admin_data(client: AIOKafkaAdminClient, report: Report, data: str) -> None:
    place = TopicPartition(data, 0)
    low = (await client.delete_records({place: RecordsToDelete(4)}))[place]
    report["trimmed"] = [low, 4]


async def _admin_groups(client: AIOKafkaAdminClient, report: Report, group: str) -> None:
    report["group listed"] = group in {each[0] for each in await client.list_consumer_groups()}
    (answer,) = await client.describe_consumer_groups([group])
    (found,) = answer.to_object()["groups"]
    report["group"] = [found["state"], len(found["members"])]
    offsets_found = await client.list_consumer_group_offsets(group)
    report["group offsets"] = {
        f"{place.topic}-{place.partition}": entry.offset for place, entry in offsets_found.items()
    }


_transactional: dict[str, Any] = {}


async def transaction(step: str, name: str, **arguments: Any) -> None:  # noqa: ANN401 - as the step has them
    """Do one step with a transactional producer, which lives on under its name."""
    match step:
        case "open":
            producer = AIOKafkaProducer(
                bootstrap_servers=arguments["bootstrap"],
                transactional_id=arguments["transactional_id"],
                transaction_timeout_ms=arguments["timeout_ms"],
            )
            await producer.start()
            _transactional[name] = producer
        case "begin":
            await _transactional[name].begin_transaction()
        case "write":
            for value in arguments["values"]:
                await _transactional[name].send_and_wait(
                    arguments["topic"], value.encode(), partition=0
                )
        case "commit":
            await _transactional[name].commit_transaction()
        case "abort":
            await _transactional[name].abort_transaction()
        case "close":
            await _transactional.pop(name).stop()


async def relay(
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
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    await producer.start()
    consumer = new_consumer(
        bootstrap,
        source,
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    try:
        await producer.begin_transaction()
        for _ in range(count):
            message = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            await producer.send(target, message.value, partition=0)
        positions = {place: await consumer.position(place) for place in consumer.assignment()}
        await producer.send_offsets_to_transaction(positions, group)
        if commit:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
    finally:
        await producer.stop()
        await consumer.stop()


if __name__ == "__main__":
    operations: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
        "produce": produce,
        "consume": consume,
        "tail": tail,
        "member": member,
        "offsets": offsets,
        "admin": admin,
        "relay": relay,
    }
    lasting = asyncio.new_event_loop()
    serve(
        {name: in_a_loop(each) for name, each in operations.items()}
        | {"transaction": lambda **call: lasting.run_until_complete(transaction(**call))},
        code_of,
    )
