"""That what clients used is remembered as long as it matters, and no more."""

import tracemalloc

from headwater.delivery.broker.quotas.meters import METERS_MAX, Meters
from headwater.delivery.broker.quotas.rate import Rate, Windows

WINDOWS = Windows(11, 1000)


def rates() -> Meters[Rate]:
    return Meters(lambda now_ms: Rate(WINDOWS, now_ms))


def test_the_same_name_gets_the_same_measurement() -> None:
    meters = rates()
    one = meters.get(("x", "joe"), 0)
    one.add(5, 0)
    assert meters.get(("x", "joe"), 100) is one
    assert meters.get(("x", "jane"), 100) is not one


def test_what_has_run_out_is_forgotten() -> None:
    meters = rates()
    for index in range(100):
        meters.get(("x", str(index)), 0)
    meters.get(("x", "7"), WINDOWS.span_ms - 1).add(1, WINDOWS.span_ms - 1)
    meters.forget_idle(WINDOWS.span_ms)
    assert len(meters) == 1


def test_newcomers_push_out_what_has_run_out() -> None:
    meters = rates()
    for index in range(1_000):
        meters.get(("x", str(index)), index * WINDOWS.span_ms)
    assert len(meters) <= 2


def test_of_a_million_names_the_latest_are_kept() -> None:
    meters = rates()
    busy = meters.get(("x", "busy"), 0)
    for index in range(1_000_000):
        meters.get(("x", f"client-{index:07}"), index // 1_000).add(1, index // 1_000)
        if index % 10_000 == 0:
            assert meters.get(("x", "busy"), index // 1_000) is busy
    assert len(meters) == METERS_MAX


def test_all_that_are_kept_cost_bounded_memory() -> None:
    meters = rates()
    count = 2_000
    tracemalloc.start()
    try:
        for second in range(WINDOWS.window_count + 2):
            for index in range(count):
                meters.get(("x", f"client-{index:07}"), second * 1000).add(1, second * 1000)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / count * METERS_MAX < 40e6


def test_long_names_cost_no_more_than_short_ones() -> None:
    meters = rates()
    long = "\u00fc" * 16_000
    tracemalloc.start()
    try:
        for index in range(1_000):
            meters.get(("x", f"{index}{long}"), 0)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1e6
    assert meters.get(("x", f"7{long}"), 0) is meters.get(("x", f"7{long}"), 0)
    assert meters.get(("x", f"7{long}"), 0) is not meters.get(("x", f"8{long}"), 0)
