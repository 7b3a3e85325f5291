"""How the demo looks.

This file alone decides what is drawn of it: a moving picture where somebody looks, a line a second
elsewhere, nothing where only the result is wanted. It changes nothing.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from headwater.cli import output
from headwater.delivery.client.consumer import Message

if TYPE_CHECKING:
    import rich.console
    import rich.live
    import rich.table

_TAIL_LINES = 8
_EVENT_LINES = 6
_RATE_WINDOW_S = 2.0
_LINE_EVERY_S = 1.0
_IDLE = {"starting", "killed", "stopped"}


class Actor(Protocol):
    """A process that takes part."""

    name: str
    state: str
    records: int
    partitions: list[int]


class Scene(Protocol):
    """What there is to see."""

    address: str
    recent: dict[int, list[Message]]
    events: list[tuple[float, str]]

    @property
    def age_s(self) -> float:
        """How long it has gone on."""
        ...

    @property
    def children(self) -> Mapping[str, Actor]:
        """Everybody who takes part, by name."""
        ...


class View:
    """Shows nothing; the others build on it."""

    def __enter__(self) -> Self:
        """Begin to show."""
        return self

    def __exit__(self, *_: object) -> None:
        """Show no more."""

    def event(self, age_s: float, text: str) -> None:
        """Something has happened."""

    def draw(self, scene: Scene) -> None:
        """Some time has passed."""


def make_view(*, quiet: bool) -> View:
    """Return what fits the terminal."""
    if quiet:
        return View()
    return Picture() if output.is_interactive(sys.stdout) else Lines()


class Rates:
    """Records a second, over the last moments."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._seen: dict[str, list[tuple[float, int]]] = {}

    def rate(self, actor: Actor) -> float:
        """Return how fast somebody is just now."""
        now_s = time.monotonic()
        seen = self._seen.setdefault(actor.name, [])
        seen.append((now_s, actor.records))
        while len(seen) > 2 and seen[0][0] < now_s - _RATE_WINDOW_S:
            del seen[0]
        passed_s = now_s - seen[0][0]
        return (actor.records - seen[0][1]) / passed_s if passed_s else 0.0


class Lines(View):
    """A line for every event, and one a second."""

    def __init__(self) -> None:
        """Begin with the first second of the play, whenever that is."""
        self._rates = Rates()
        self._due_s: float | None = None

    def event(self, age_s: float, text: str) -> None:
        """Tell it at once."""
        output.say(f"{age_s:5.1f} s  * {text}")

    def draw(self, scene: Scene) -> None:
        """Tell the rates, and the newest record."""
        rates = {actor.name: self._rates.rate(actor) for actor in scene.children.values()}
        now_s = time.monotonic()
        due_s = self._due_s
        if due_s is not None and now_s < due_s:
            return
        self._due_s = now_s + _LINE_EVERY_S
        if due_s is None:
            return
        parts = [
            f"{actor.name} {_pace(actor, rates[actor.name])}"
            for actor in scene.children.values()
            if actor.name != "broker"
        ]
        records = _newest(scene)
        last = max(records, key=lambda record: record.timestamp_ms, default=None)
        newest = f"  | {one_line(last)}" if last else ""
        output.say(f"{scene.age_s:5.1f} s    {'  '.join(parts)}{newest}")
        sys.stdout.flush()


class Picture(View):
    """The actors, the newest records and what has happened, redrawn in place."""

    def __init__(self) -> None:
        """Load what draws."""
        # Rich takes a tenth of a second to load: only those who see it pay.
        import rich.live  # noqa: PLC0415

        self._rates = Rates()
        self._live = rich.live.Live(auto_refresh=False, transient=False)

    def __enter__(self) -> Self:
        """Take over the lower part of the terminal."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last picture standing."""
        self._live.stop()

    def draw(self, scene: Scene) -> None:
        """Draw it anew."""
        import rich.console  # noqa: PLC0415
        import rich.panel  # noqa: PLC0415
        import rich.text  # noqa: PLC0415

        title = f"[bold]headwater demo[/]  {scene.address}  {scene.age_s:.0f} s"
        tail = rich.text.Text(
            "\n".join(_pad([one_line(each) for each in _newest(scene)], _TAIL_LINES)),
            no_wrap=True,
            overflow="ellipsis",
        )
        told = [f"{age_s:5.1f} s  {text}" for age_s, text in scene.events]
        events = rich.text.Text(
            "\n".join(_pad(told, _EVENT_LINES)), no_wrap=True, overflow="ellipsis"
        )
        picture = rich.console.Group(
            title,
            self._actors(scene),
            rich.panel.Panel(tail, title="tail of orders", title_align="left"),
            rich.panel.Panel(events, title="what happened", title_align="left"),
        )
        self._live.update(picture, refresh=True)

    def _actors(self, scene: Scene) -> "rich.table.Table":
        import rich.table  # noqa: PLC0415

        table = rich.table.Table(expand=True, box=None, header_style="dim")
        table.add_column("process")
        table.add_column("state")
        table.add_column("records/s", justify="right")
        table.add_column("records", justify="right")
        table.add_column("partitions")
        for actor in scene.children.values():
            if actor.name == "broker":
                continue
            style = {"killed": "red", "running": "green"}.get(actor.state, "")
            table.add_row(
                actor.name,
                f"[{style}]{actor.state}[/]" if style else actor.state,
                f"{self._rates.rate(actor):,.0f}",
                f"{actor.records:,}",
                " ".join(map(str, actor.partitions)) if actor.state != "killed" else "",
            )
        return table


def _pace(actor: Actor, rate: float) -> str:
    """Return how fast somebody is, or why there is nothing to tell."""
    return actor.state if actor.state in _IDLE else f"{rate:,.0f}/s"


def one_line(message: Message) -> str:
    """Return a record in short."""
    key = (message.key or b"").decode(errors="replace")
    value = (message.value or b"").decode(errors="replace")
    return f"{message.topic}-{message.partition}@{message.offset}  {key}  {value}"


def _newest(scene: Scene) -> list[Message]:
    return [message for messages in scene.recent.values() for message in messages]


def _pad(lines: Sequence[str], height: int) -> list[str]:
    """Return the last lines, always as many, so that the picture keeps its size."""
    shown = list(lines[-height:])
    return shown + [""] * (height - len(shown))
