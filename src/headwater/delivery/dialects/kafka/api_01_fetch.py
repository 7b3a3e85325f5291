"""Fetch: v4-18.

Behaviour:
* Whole batches from the one that holds the fetch offset; the first batch is sent even when it is
  larger than every limit (KIP-74).
* Answers at once when ``min_bytes`` are there, on any error of a partition that exists, or when
  ``max_wait_ms`` is 0; else waits until enough has become visible or the time is up.
* Only what is durable is visible (the high watermark); under read_committed only what lies below
  the last stable offset.
* A fetch that would be answered without a record waits first for what was answered to producers
  with acks=1 and is not synced yet, for three seconds more than ``max_wait_ms`` at most. Records
  of any of its partitions end that wait.
* Under read_committed the aborted transactions come along; it is the client that skips them.
* Records travel as file ranges: the connection sends them without reading them.
* A client above its consumer_byte_rate gets an empty answer at once, and has to wait (KIP-219).
* In a session (KIP-227) a request names only what changed, and an answer tells only what is new.
  While a request waits, the next one of its session may come by another connection: the older one
  is then answered with INVALID_FETCH_SESSION_EPOCH.
* A client without sessions names a thousand partitions twice a second even when nothing happens:
  such a fetch is answered from pieces that were encoded before.

Version notes:
* v4: isolation level. v5: log start offset. v7: sessions. v9: leader epochs (KIP-320).
* v10: zstd. v12: flexible, diverging epochs for followers only. v13: topics by id (KIP-516).
"""

from headwater.base.errors import KafkaError
from headwater.delivery.broker.fetch import Limits, LongPoll
from headwater.delivery.broker.fetch_sessions import FIRST_EPOCH, NO_EPOCH, NO_SESSION
from headwater.delivery.broker.promises import PATIENCE_MS, Wait
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.dialects.kafka.fetching import (
    FIRST_WITH_TOPIC_IDS,
    Fetch,
    resolve,
    session_key,
    wanted_by,
)
from headwater.delivery.dialects.kafka.quiet_fetch import QuietFetch, maybe_quiet_fetch
from headwater.delivery.wire.kafka import messages

KEY = 1
VERSIONS = (4, 18)

_READ_COMMITTED = 1


def handle(call: Call, request: messages.FetchRequest) -> None:
    """Answer with what is there, or wait for it."""
    max_bytes = min(request.max_bytes, call.broker.settings.fetch_max_bytes)
    if call.broker.quotas.watching:
        max_bytes = min(max_bytes, call.broker.quotas.fetch_bytes_max(call.client_id))
    limits = Limits(
        # Whoever wants more than fits into an answer would wait in vain.
        min(request.min_bytes, max_bytes),
        max_bytes,
        request.max_wait_ms,
        request.isolation_level == _READ_COMMITTED,
    )
    sessions = call.broker.fetch_sessions
    promises = call.broker.promises
    session_id, epoch = request.session_id, request.session_epoch
    if epoch in {NO_EPOCH, FIRST_EPOCH} and session_id != NO_SESSION:
        sessions.end(session_id)
    if epoch == NO_EPOCH:
        quiet = maybe_quiet_fetch(call, request, limits)
        if quiet is not None and not promises.concern(quiet.partitions):
            _wait(call, quiet, limits)
            return
        fetch = Fetch(call, limits, list(wanted_by(call, request)))
    elif epoch == FIRST_EPOCH:
        fetch = Fetch(call, limits, list(wanted_by(call, request)), wants_session=True)
    else:
        try:
            fetch = _fetch_of_session(call, request, limits)
        except KafkaError as refused:
            call.reply(messages.FetchResponse(error_code=refused.code))
            return
    enough = fetch.look()
    if promises.outstanding and not fetch.has_records and promises.concern(fetch.partitions):
        _wait_for_sync(call, fetch, limits)
    else:
        _go_on(call, fetch, limits, enough)


def _wait_for_sync(call: Call, fetch: Fetch, limits: Limits) -> None:
    """Go on when what producers were told of is visible, or when any partition has a record."""
    until_ms = call.broker.clock.monotonic_ms() + limits.max_wait_ms
    partitions = fetch.partitions

    def look() -> None:
        enough = fetch.look()
        # Of a topic that was deleted meanwhile nothing is awaited any more.
        if fetch.has_records or not call.broker.promises.concern(partitions):
            stop()
            _go_on(call, fetch, _until(call, limits, until_ms), enough)

    def go_on() -> None:
        stop()
        _go_on(call, fetch, _until(call, limits, until_ms), fetch.look())

    def give_up() -> None:
        stop()
        fetch.answer_without_promised()

    def stop() -> None:
        for partition in partitions:
            partition.unwatch(look)
        if wait is not None:
            wait.cancel()

    wait: Wait | None = None
    wait = call.broker.promises.when_kept(
        partitions,
        go_on,
        otherwise=give_up,
        patience_ms=max(0, limits.max_wait_ms) + PATIENCE_MS,
    )
    if wait is not None:
        for partition in partitions:
            partition.watch(look)
        call.on_cancel(stop)


def _until(call: Call, limits: Limits, until_ms: float) -> Limits:
    """Return the limits with what is left of the time to wait."""
    left_ms = int(until_ms - call.broker.clock.monotonic_ms())
    return limits._replace(max_wait_ms=max(0, left_ms))


def _go_on(call: Call, fetch: Fetch, limits: Limits, enough: bool) -> None:
    if enough or limits.max_wait_ms <= 0 or not fetch.partitions:
        fetch.answer()
    else:
        _wait(call, fetch, limits)


def _wait(call: Call, fetch: Fetch | QuietFetch, limits: Limits) -> None:
    poll = LongPoll(fetch, fetch.partitions, limits.max_wait_ms, call.broker.timers)
    call.on_cancel(poll.cancel)


def _fetch_of_session(call: Call, request: messages.FetchRequest, limits: Limits) -> Fetch:
    sessions = call.broker.fetch_sessions
    by_id = call.version >= FIRST_WITH_TOPIC_IDS
    session = sessions.go_on(request.session_id, request.session_epoch, by_id=by_id)
    added = {session_key(each): each for each in wanted_by(call, request)}
    forgotten = [
        (topic.topic, topic.topic_id, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    sessions.change(session, added, forgotten)
    wanted = list(session.wanted.values())
    for each in wanted:
        if each.partition is None or each.partition.ended:
            # The topic may have come into being, or be another one of the same name.
            resolve(call, each)
    return Fetch(call, limits, wanted, session if wanted else None)
