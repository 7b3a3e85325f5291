"""Python source in the making: lines, their depth, and the constants they name.

This file alone decides how generated source is laid out and turned into a function. It knows
nothing of schemas.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """The source of one function."""

    def __init__(self, **helpers: Any) -> None:  # noqa: ANN401 - whatever the source calls
        self._lines: list[str] = []
        self._depth = 0
        self._namespace = helpers
        self._names: dict[tuple[str, Any], str] = {}

    def line(self, text: str) -> None:
        """Add one line at the present depth."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that ends in a colon; what follows inside stands one deeper."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def constant(self, prefix: str, key: Any, value: Any) -> str:  # noqa: ANN401 - any constant
        """Return the name of a constant; equal prefix and key share one."""
        name = self._names.get((prefix, key))
        if name is None:
            name = self._names[prefix, key] = f"{prefix}{len(self._names)}"
            self._namespace[name] = value
        return name

    def reader(self, layout: str) -> str:
        """Return the name of a function that unpacks this struct layout from (buffer, pos)."""
        return self.constant("read", layout, struct.Struct(">" + layout).unpack_from)

    def writer(self, layout: str) -> str:
        """Return the name of a function that packs values in this struct layout."""
        return self.constant("write", layout, struct.Struct(">" + layout).pack)

    def function(self, name: str, filename: str) -> Callable[..., Any]:
        """Compile the lines and return the function of this name."""
        code = compile("\n".join(self._lines) + "\n", filename, "exec")
        exec(code, self._namespace)  # noqa: S102 - the source is ours, made from a checked table
        function: Callable[..., Any] = self._namespace[name]
        return function

    def text(self) -> str:
        """Return the source so far, for people."""
        return "\n".join(self._lines) + "\n"
