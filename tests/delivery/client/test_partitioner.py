"""Where keys go, by kafka-python's implementation of the same hash."""

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from headwater.delivery.client.partitioner import murmur2, partition_for_key


@given(st.binary(max_size=40))
def test_the_hash_is_kafkas(data: bytes) -> None:
    assert murmur2(data) == reference(data)


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_the_partition_is_the_positive_hash(data: bytes, count: int) -> None:
    assert partition_for_key(data, count) == (reference(data) & 0x7FFFFFFF) % count
