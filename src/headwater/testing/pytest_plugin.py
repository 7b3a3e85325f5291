"""Fixtures that give any project a Kafka broker, with neither container nor JVM.

This file alone decides what pytest offers to projects that have Headwater installed:

* ``headwater_broker``: a running broker, shared by the whole test session.
* ``headwater_fresh_broker``: one of its own for a single test, empty.

Both are ``EmbeddedBroker`` objects; ``bootstrap_servers`` is what a client wants to know.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headwater.testing.broker import EmbeddedBroker


@pytest.fixture(scope="session")
def headwater_broker() -> "Iterator[EmbeddedBroker]":
    """Run one broker for all tests of the session."""
    from headwater.testing.broker import EmbeddedBroker  # noqa: PLC0415 - only when it is used

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def headwater_fresh_broker() -> "Iterator[EmbeddedBroker]":
    """Run a broker with nothing in it for one test."""
    from headwater.testing.broker import EmbeddedBroker  # noqa: PLC0415 - only when it is used

    with EmbeddedBroker() as broker:
        yield broker
