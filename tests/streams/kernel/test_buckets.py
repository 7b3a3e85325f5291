"""Into which bucket a key falls, and how Spark spreads buckets over tasks."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.kernel.buckets import (
    DEFAULT_BUCKETS,
    EVERYWHERE,
    bucket_ids,
    bucket_of,
)


@pytest.mark.parametrize("tasks", [1, 2, 4, 8, 16, 32, 64])
def test_each_task_has_the_same_number_of_buckets(tasks: int) -> None:
    per_task = Counter(_sparks_hash(number) % tasks for number in bucket_ids(DEFAULT_BUCKETS))

    assert set(per_task.values()) == {DEFAULT_BUCKETS // tasks}


@pytest.mark.parametrize("buckets", [1, 2, 3, 7, 16, 64, 200])
def test_numbers_are_distinct(buckets: int) -> None:
    assert len(set(bucket_ids(buckets))) == buckets


@pytest.mark.parametrize("buckets", [*range(1, 130), 200, 1000])
def test_one_bucket_has_the_same_number_whatever_their_count(buckets: int) -> None:
    assert EVERYWHERE in bucket_ids(buckets)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1), st.integers(1, 1000))
def test_every_hash_falls_into_a_bucket(hashes: list[int], buckets: int) -> None:
    found = bucket_of(np.array(hashes, np.uint64), buckets)

    expected = [((value >> 32) * buckets) >> 32 for value in hashes]
    assert found.tolist() == expected
    assert all(0 <= bucket < buckets for bucket in expected)


def _sparks_hash(number: int) -> int:
    """Murmur3 as its author describes it, on the bytes of an int, written without ours."""
    (block,) = np.frombuffer(np.int32(number).tobytes(), "<u4")
    with np.errstate(over="ignore"):
        block = np.uint32(block) * np.uint32(0xCC9E2D51)
        block = (block << np.uint32(15)) | (block >> np.uint32(17))
        state = np.uint32(42) ^ (block * np.uint32(0x1B873593))
        state = (state << np.uint32(13)) | (state >> np.uint32(19))
        state = state * np.uint32(5) + np.uint32(0xE6546B64)
        state ^= np.uint32(4)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            state = (state ^ (state >> np.uint32(shift))) * np.uint32(factor)
        state ^= state >> np.uint32(16)
    return int(np.int32(state))
