"""Queries that end with their test, and topics to read."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.streams.brokers import Broker
from tests.streams.source.driving import Query, Streams


@pytest.fixture
def stream(broker: Broker) -> Iterator[Streams]:
    with ExitStack() as stack:

        def start(options: dict[str, str], **more: Any) -> Query:  # noqa: ANN401 - as Query's
            query = Query(broker, options, **more)
            stack.callback(query.reader.stop)
            return query

        yield start


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.topic(partitions=2)


@pytest.fixture
def single(broker: Broker) -> str:
    return broker.topic()
