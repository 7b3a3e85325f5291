"""Groups are those of a Python dict, and hashes those that were written down."""

import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.kernel import grouping
from headwater.streams.kernel.grouping import group, hashes

FEW = st.lists(st.binary(max_size=3) | st.binary(min_size=7, max_size=18), max_size=40)


def _grouped(keys: list[bytes]) -> tuple[list[int], list[int]]:
    codes: dict[bytes, int] = {}
    firsts = []
    for row, key in enumerate(keys):
        if key not in codes:
            codes[key] = len(codes)
            firsts.append(row)
    return [codes[key] for key in keys], firsts


@settings(max_examples=200, deadline=None)
@given(FEW.flatmap(lambda few: st.lists(st.sampled_from([*few, b""]), max_size=80)), st.data())
def test_groups_are_those_of_a_dict(keys: list[bytes], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(keys)))
    found = group(pa.array(keys, pa.binary()).slice(start))
    codes, firsts = _grouped(keys[start:])
    assert found.codes.tolist() == codes
    assert found.firsts.tolist() == firsts
    assert found.codes.dtype == found.firsts.dtype == np.int64


def test_many_groups_are_told_apart() -> None:
    dice = np.random.default_rng(3)
    numbers = dice.integers(0, 40_000, 100_000)
    keys = pa.array([int(number).to_bytes(9, "little") for number in numbers], pa.binary())
    _, firsts, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    found = group(keys)
    assert found.firsts.tolist() == sorted(firsts.tolist())
    assert (numbers[found.firsts][found.codes] == numbers).all()
    assert len(np.unique(inverse)) == len(found.firsts)


def test_hashes_are_written_down() -> None:
    """If this fails, the hash has changed, and no checkpoint can be read any more."""
    keys = [bytes(range(count)) for count in (0, 1, 7, 8, 9, 15, 16, 17, 100)]
    assert [f"{value:016x}" for value in hashes(pa.array(keys, pa.binary()))] == VECTORS


VECTORS = [
    "f0e4732216a3c55a",
    "fda5ab602faa3038",
    "c964da8596c2c391",
    "c3a56b54433236ad",
    "d8f27d2bc671d4b5",
    "dbb358a2edc641d7",
    "b4f1c963195df2a3",
    "d33b581186953e07",
    "837d01a1e776bb0e",
]


def test_hashes_spread_evenly() -> None:
    """Numbers next to each other, as ids are, fall into 64 buckets like dice would."""
    keys = [b"\1" + number.to_bytes(8, "little") for number in range(64_000)]
    found = hashes(pa.array(keys, pa.binary()))
    assert len(np.unique(found)) == len(keys)
    for shift in range(0, 64, 6):
        counts = np.bincount((found >> np.uint64(shift)).astype(np.int64) & 63, minlength=64)
        # 1000 each; six standard deviations.
        if shift < 60:
            assert 810 < counts.min() <= counts.max() < 1190


@pytest.mark.skipif(
    sys.hash_info.algorithm != "siphash13", reason="this Python hashes bytes in another way"
)
def test_the_secret_hash_is_siphash() -> None:
    """CPython's own hash of bytes is SipHash-1-3, and without a seed its secret is zero."""
    program = "print(*(hash(bytes(range(count))) % 2**64 for count in range(1, 40)))"
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": "0"},
        capture_output=True,
        check=True,
        text=True,
    )
    data = np.frombuffer(bytes(range(40)), np.uint8)
    secret = np.zeros(2, np.uint64)
    ours = [int(grouping._secret_hash(data, 0, count, secret)) for count in range(1, 40)]
    assert ours == [int(number) for number in told.stdout.split()]


def test_one_bit_changes_each_bit_of_the_hash_as_often_as_not() -> None:
    dice = np.random.default_rng(5)
    for length in (8, 9, 20):
        keys = dice.integers(0, 256, (4096, length)).astype(np.uint8)
        base = _hashes_of(keys)
        for bit in range(8 * length):
            others = keys.copy()
            others[:, bit // 8] ^= 1 << (bit % 8)
            changed = np.unpackbits((base ^ _hashes_of(others)).view(np.uint8).reshape(-1, 8), 1)
            # A half; seven standard deviations.
            assert np.abs(changed.mean(axis=0) - 0.5).max() < 0.055


def _hashes_of(keys: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    return hashes(pa.array([key.tobytes() for key in keys], pa.binary()))


def test_colliding_hashes_do_not_slow_groups_down() -> None:
    """Two-word keys with one fixed hash: the secret tells them apart in a few probes."""
    keys = pa.array(_colliding(20_000), pa.binary())
    assert len(np.unique(hashes(keys))) == 1
    found = group(keys)
    assert found.codes.tolist() == found.firsts.tolist() == list(range(len(keys)))
    data = np.frombuffer(b"".join(keys.to_pylist()), np.uint8)
    secret = [
        int(grouping._secret_hash(data, 16 * row, 16 * row + 16, grouping._SECRET))
        for row in range(2000)
    ]
    assert len(set(secret)) == 2000


def _colliding(count: int) -> list[bytes]:
    """Make keys of 16 bytes that have the same hash: undo the second word's mixing."""
    mask = 2**64 - 1
    multiplier = int(grouping._MULTIPLIER)
    value = int(grouping._START) ^ (16 * int(grouping._FINISHER) & mask)
    keys = []
    for first in range(count):
        product = (value ^ first) * multiplier & mask
        inner = product ^ (product >> 32)
        second = inner ^ 0x1234_5678_9ABC_DEF0
        keys.append(first.to_bytes(8, "little") + second.to_bytes(8, "little"))
    return keys
