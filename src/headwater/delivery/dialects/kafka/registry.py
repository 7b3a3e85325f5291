"""Which APIs are served.

This file alone decides what the broker advertises and answers: every module beside it whose name
starts with ``api_`` is served in the versions that it declares, and nothing else is. What is
missing, and why, stands in ``skipped.md``.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, Protocol, cast

from headwater.delivery.dialects import kafka
from headwater.delivery.dialects.kafka.call import Call


class Api(Protocol):
    """A module with a handler."""

    KEY: int
    VERSIONS: tuple[int, int]

    def handle(self, call: Call, request: Any) -> None:  # noqa: ANN401 - each its own message
        """Answer the call."""
        ...


def _find() -> dict[int, Api]:
    found: dict[int, Api] = {}
    for entry in pkgutil.iter_modules(kafka.__path__):
        if entry.name.startswith("api_"):
            module = cast("Api", importlib.import_module(f"{kafka.__name__}.{entry.name}"))
            assert entry.name.startswith(f"api_{module.KEY:02d}_"), entry.name
            found[module.KEY] = module
    return found


APIS: Mapping[int, Api] = _find()
"""The module of every served API, by its key."""
