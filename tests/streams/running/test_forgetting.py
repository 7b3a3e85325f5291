"""What is left of a query, where the broker does not let go of all of it."""

import logging
from typing import Any

import pytest

from headwater.base.errors import HeadwaterError
from headwater.streams.running.forgetting import forget_query
from headwater.streams.sink import marker_log
from headwater.streams.time import time_log


def test_what_cannot_be_forgotten_is_told_and_keeps_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forgotten = []

    def refused(*_: object) -> None:
        raise HeadwaterError("not allowed")

    monkeypatch.setattr(marker_log, "forget_query", refused)
    monkeypatch.setattr(time_log, "forget_query", lambda _, query_id: forgotten.append(query_id))
    cluster: Any = None
    with caplog.at_level(logging.WARNING):
        forget_query(cluster, "q")
    assert forgotten == ["q"]
    assert "not allowed" in caplog.text
