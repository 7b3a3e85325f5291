"""What becomes of rows that come when their window has closed.

This file alone decides which ways there are. `Drop` forgets them. `Correct` keeps what a window was
made of for a while: rows that come within it take the result back and give a new one. Rows that
are too late even for that are dropped. Whatever is dropped is counted.
"""

from dataclasses import dataclass

from headwater.streams.time.durations import duration_text
from headwater.streams.windows.errors import WindowSettingError


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget late rows."""

    @property
    def until_us(self) -> int:
        """How long results can be corrected: not at all."""
        return 0


@dataclass(frozen=True, slots=True)
class Correct:
    """Correct results until the watermark is `until_us` behind the end of their windows."""

    until_us: int

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.until_us <= 0:
            raise WindowSettingError(
                f"results cannot be corrected for {duration_text(self.until_us)}",
                hint="give a time longer than nothing, or drop late rows",
            )


Lateness = Drop | Correct
