"""A bar that moves while something takes its time.

This file alone decides whether and how progress is drawn: on standard error, only where somebody
looks, only when it takes longer than a moment, and gone when it is over.
"""

import sys
import time
from typing import TYPE_CHECKING

from headwater.cli import output

if TYPE_CHECKING:
    import rich.progress

# What is over sooner needs no bar.
_PATIENCE_S = 0.5
_REDRAW_S = 0.1


class Progress:
    """How far something has come."""

    def __init__(self, title: str, *, unit: str, quiet: bool = False) -> None:
        """Nothing is drawn before the first ``show`` that comes after a moment."""
        self._title = title
        self._unit = unit
        self._wanted = not quiet and output.is_interactive(sys.stderr)
        self._begun_s = self._drawn_s = time.monotonic()
        self._bar: rich.progress.Progress | None = None

    def show(self, done: int, total: int | None) -> None:
        """Say how far it is; cheap enough to be called often."""
        if not self._wanted:
            return
        now_s = time.monotonic()
        if now_s - self._begun_s < _PATIENCE_S or now_s - self._drawn_s < _REDRAW_S:
            return
        self._drawn_s = now_s
        if self._bar is None:
            self._bar = self._make_bar(total)
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, refresh=True)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _make_bar(self, total: int | None) -> "rich.progress.Progress":
        # A tenth of a second that only those pay who see a bar.
        import rich.console  # noqa: PLC0415
        import rich.progress  # noqa: PLC0415

        amount: rich.progress.ProgressColumn = rich.progress.MofNCompleteColumn()
        if self._unit == "bytes":
            amount = rich.progress.DownloadColumn(binary_units=True)
        bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            amount,
            rich.progress.TextColumn("" if self._unit == "bytes" else self._unit),
            rich.progress.TimeRemainingColumn(),
            console=rich.console.Console(stderr=True),
            transient=True,
            auto_refresh=False,
        )
        bar.add_task(self._title, total=total)
        bar.start()
        return bar
