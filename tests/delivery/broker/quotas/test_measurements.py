"""Rates and buckets, held against a count of every single amount and against Kafka's own."""

import math
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.delivery.broker.quotas.bucket import TokenBucket
from headwater.delivery.broker.quotas.rate import Rate, Windows
from tests import peers

Use = tuple[int, int]
"""When, and how much."""

# As Kafka's clock: its buckets believe that the last visit was in 1970.
START_MS = 1_700_000_000_000


@st.composite
def uses(draw: st.DrawFn) -> list[Use]:
    """Amounts at times that never go back, with pauses from none to longer than all windows."""
    pause = st.one_of(st.integers(0, 30), st.integers(50, 350), st.integers(900, 2_000))
    now_ms, found = START_MS, []
    for _ in range(draw(st.integers(1, 60))):
        now_ms += draw(pause)
        found.append((now_ms, draw(st.integers(1, 500))))
    return found


windows = st.builds(Windows, st.integers(1, 6), st.integers(1, 300))
limits = st.sampled_from([0.5, 1, 7, 100, 1_000, 12_345.678])


class CountedRate:
    """Every amount is kept for ever, with the sample that it fell into."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[tuple[int, list[Use]]] = []

    def use(self, amount: int, limit: float, now_ms: int) -> int:
        count, window_ms = self._windows
        if not self._samples or now_ms - self._samples[-1][0] >= window_ms:
            self._samples.append((now_ms, []))
        self._samples[-1][1].append((now_ms, amount))
        counting = [
            (start_ms, used)
            for start_ms, used in self._samples
            if now_ms - used[-1][0] < count * window_ms
        ]
        total = sum(amount for _, used in counting for _, amount in used)
        elapsed_ms = now_ms - counting[0][0]
        while elapsed_ms < (count - 1) * window_ms:
            elapsed_ms += window_ms
        elapsed_ms = max(1, elapsed_ms)
        rate = total / (elapsed_ms / 1000)
        return 0 if rate <= limit else math.floor((rate / limit - 1) * elapsed_ms + 0.5)


def throttle_times(windows: Windows, limit: float, used: list[Use]) -> list[int]:
    rate = Rate(windows, used[0][0])
    times = []
    for now_ms, amount in used:
        rate.add(amount, now_ms)
        times.append(rate.excess_ms(limit, now_ms))
    return times


def bucket_times(windows: Windows, limit: float, used: list[Use]) -> list[int]:
    bucket = TokenBucket(windows, used[0][0])
    times = []
    for now_ms, amount in used:
        bucket.spend(amount, limit, now_ms)
        times.append(bucket.overdrawn_ms(limit, now_ms))
    return times


@given(windows, limits, uses())
def test_a_rate_is_what_counting_everything_gives(
    windows: Windows, limit: float, used: list[Use]
) -> None:
    counted = CountedRate(windows)
    expected = [counted.use(amount, limit, now_ms) for now_ms, amount in used]
    times = throttle_times(windows, limit, used)
    # The two round differently, by a millisecond in some ten thousand.
    assert times == pytest.approx(expected, abs=1)


@given(windows, limits, uses())
def test_a_bucket_is_what_counting_everything_gives(
    windows: Windows, limit: float, used: list[Use]
) -> None:
    burst = limit * windows.span_ms / 1000
    tokens, last_ms, expected = burst, used[0][0], []
    for now_ms, amount in used:
        tokens = min(burst, tokens + limit * (now_ms - last_ms) / 1000) - amount
        last_ms = now_ms
        expected.append(max(0, math.floor(-tokens / limit * 1000 + 0.5)))
    assert bucket_times(windows, limit, used) == pytest.approx(expected, abs=1)


@given(windows, limits, uses())
def test_whoever_waits_as_long_as_told_is_within_the_limit(
    windows: Windows, limit: float, used: list[Use]
) -> None:
    """Not exactly: a wait is counted from the sample's begin, which then drops out as a whole."""
    rate, now_ms, total = Rate(windows, 0), 0, 0
    for _, amount in used:
        rate.add(amount, now_ms)
        total += amount
        now_ms += rate.excess_ms(limit, now_ms)
    allowed = limit * (now_ms + windows.span_ms) / 1000 + max(amount for _, amount in used)
    if windows.window_count > 1:
        assert total <= 2 * allowed


@given(windows, uses())
def test_an_idle_rate_knows_no_more_than_a_new_one(windows: Windows, used: list[Use]) -> None:
    rate = Rate(windows, used[0][0])
    for now_ms, amount in used:
        rate.add(amount, now_ms)
    later_ms = used[-1][0] + windows.span_ms
    assert not rate.is_idle(later_ms - 1)
    assert rate.is_idle(later_ms)
    new = Rate(windows, later_ms)
    for each in (rate, new):
        each.add(77, later_ms)
    assert rate.excess_ms(5, later_ms) == new.excess_ms(5, later_ms)


@given(windows, limits, uses())
def test_an_idle_bucket_is_full(windows: Windows, limit: float, used: list[Use]) -> None:
    bucket, last_ms = TokenBucket(windows, 0), used[-1][0]
    for now_ms, amount in used:
        bucket.spend(amount, limit, now_ms)
    debt_ms = bucket.overdrawn_ms(limit, last_ms)
    full_ms = last_ms + debt_ms + windows.span_ms + 1
    assert bucket.is_idle(full_ms)
    assert not (debt_ms and bucket.is_idle(last_ms + debt_ms - 1))
    bucket.spend(limit * windows.span_ms / 1000 * (1 - 1e-9), limit, full_ms)
    assert bucket.overdrawn_ms(limit, full_ms) == 0


def test_what_is_taken_back_never_was() -> None:
    rate = Rate(Windows(11, 1000), 0)
    rate.add(500, 100)
    rate.add(10_000, 300)
    assert rate.excess_ms(100, 300) > 0
    rate.add(-10_000, 300)
    assert (rate.excess_ms(100, 300), rate.total) == (0, 500)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator["subprocess.Popen[str]"]:
    """Kafka's own measurements, in a process of their own."""
    peers.require("kafka")
    peers.require("javac")
    folder = tmp_path_factory.mktemp("oracle")
    classes = peers.compile_java(Path(__file__).with_name("QuotaOracle.java"), folder)
    command = peers.java_command("QuotaOracle", more=[classes])
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.peer
@pytest.mark.parametrize(
    "kind, measure", [("rate", throttle_times), ("bucket", bucket_times)], ids=["rate", "bucket"]
)
def test_kafka_measures_the_same(
    oracle: "subprocess.Popen[str]",
    kind: str,
    measure: Callable[[Windows, float, list[Use]], list[int]],
) -> None:
    assert oracle.stdin is not None
    assert oracle.stdout is not None
    chance = random.Random(2024)
    throttled = 0
    for _ in range(300):
        windows = Windows(chance.randint(1, 12), chance.choice([1, 30, 250, 1000]))
        limit = chance.choice([0.5, 3, 100, 5_000, 98_765.4321])
        now_ms, used = START_MS, []
        for _ in range(chance.randint(1, 120)):
            now_ms += chance.choice([0, 1, chance.randint(0, 500), chance.randint(0, 15_000)])
            used.append((now_ms, chance.randint(1, 100_000)))
        words = [kind, *map(str, windows), str(limit), *(f"{at}:{much}" for at, much in used)]
        oracle.stdin.write(" ".join(words) + "\n")
        oracle.stdin.flush()
        told = list(map(int, oracle.stdout.readline().split()))
        assert measure(windows, limit, used) == told, words
        throttled += sum(time > 0 for time in told)
    assert throttled > 1_000
