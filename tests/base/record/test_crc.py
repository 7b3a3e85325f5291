"""The checksum against published vectors and a foreign implementation."""

import mmap
from pathlib import Path

import crc32c as foreign
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.record.crc import crc32c


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"", 0x00000000),
        (b"123456789", 0xE3069283),
        # RFC 3720, appendix B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_published_vectors(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


@given(st.binary(max_size=3000), st.integers(0, 70))
def test_slices_of_any_alignment(data: bytes, start: int) -> None:
    expected = foreign.crc32c(data[start:])
    assert crc32c(memoryview(data)[start:]) == expected
    assert crc32c(memoryview(bytearray(data))[start:]) == expected
    assert crc32c(bytearray(data[start:])) == expected


def test_large_input_and_mapped_file(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096
    path = tmp_path / "data"
    path.write_bytes(data)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        assert crc32c(view[5:]) == foreign.crc32c(data[5:])
        view.release()
