"""How descriptors are shared out between the log and the clients."""

import logging
import resource
import sys

import pytest

from headwater.delivery.server.descriptors import share_descriptors


def limited(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))


@pytest.mark.parametrize("limit", [64, 256, 1024, 4096, 1_048_576])
@pytest.mark.parametrize("wanted", [None, 16, 100, 10_000, 2_000_000])
def test_what_is_given_away_is_less_than_there_is(
    monkeypatch: pytest.MonkeyPatch, limit: int, wanted: int | None
) -> None:
    limited(monkeypatch, limit)
    shares = share_descriptors(wanted)

    spare = limit - shares.log - shares.clients
    assert spare >= min(64, limit // 8)
    assert shares.log > 0
    assert shares.clients >= spare


def test_the_log_gets_a_third_unless_somebody_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited(monkeypatch, 1024)

    assert share_descriptors(None) == (341, 619)
    assert share_descriptors(100) == (100, 860)


def test_more_than_there_is_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limited(monkeypatch, 256)
    with caplog.at_level(logging.WARNING):
        assert share_descriptors(10_000) == (192, 32)

    assert "headwater.max.open.files is 10000" in caplog.text
    assert "the log gets 192" in caplog.text


def test_without_a_limit_nobody_goes_short(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, resource.RLIM_INFINITY)

    assert share_descriptors(None) == (sys.maxsize, sys.maxsize)
    assert share_descriptors(5_000) == (5_000, sys.maxsize)
