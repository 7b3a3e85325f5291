"""What starts queries that are asked as Spark asks them, and ends them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from headwater.streams.time import report
from tests.streams.brokers import Broker
from tests.streams.time.planned import Query


@pytest.fixture
def start(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Query]]:
    with ExitStack() as stack:

        def begin(topic: str, **options: Any) -> Query:  # noqa: ANN401 - as Query's
            query = Query(broker, topic, monkeypatch, **options)
            stack.callback(query.stop)
            return query

        yield begin
    report._close()
