"""What a start must know of the runs before it.

This file alone decides what is noted in the journal of defaults of the broker and of what a crash
has found open. Defaults come from its settings, which may have changed when it starts again, while
what the last run did with them stays true: log starts that readers were told must not go back, and
where records were acknowledged before they were synced, a transaction that a crash has found open
may have lost some.

Only the start right after the crash can tell which ones, from defaults and configs. It notes their
producers before anything can change: the transactions are to be aborted, whatever configs say later
and however often the broker stops before their aborts are durable.

The note stands in the journal, in the entry of the change that brings the defaults into force, or,
for those of a start, in an entry of its own before anything happens by them. So no note is there
for a change that was refused. Where there is nothing to know, the note is empty.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from headwater.base.settings import TopicConfig
from headwater.log.manifest import Manifest, broker_configured

_OVERFLOW: Final[tuple[str, ...]] = ("headwater.overflow", "headwater.overflow.bytes")
_FLUSH: Final = "flush.messages"
_TORN: Final = "torn"


class TornProducer(NamedTuple):
    """Who has written a transaction that is to be aborted."""

    producer_id: int
    producer_epoch: int


def _facts(defaults: TopicConfig) -> dict[str, str]:
    """Return what is to be noted of these defaults, by Kafka's names of topic configs."""
    # A topic may say `drop` itself and leave the bound to the default, or the other way round.
    drops = defaults.headwater_overflow == "drop" or defaults.headwater_overflow_bytes >= 0
    keys = _OVERFLOW if drops else ()
    if not defaults.is_durable:
        keys = (*keys, _FLUSH)
    return {key: defaults.render(key) for key in keys}


class Note:
    """The note of a data directory.

    Attributes:
        found: What the last run had noted of its defaults.
        torn: Whose open transactions are to be aborted: a crash may have taken a part of them.
    """

    def __init__(self, journal: Manifest, *, clean: bool) -> None:
        """Read it; ``clean`` tells whether the last run has ended cleanly."""
        self._journal = journal
        self.found = {key: value for key, value in journal.image.noted.items() if key != _TORN}
        self.torn = _read_torn(journal.image.noted.get(_TORN, ""))
        self._of_this_run: dict[str, str] = {}
        # Noted whatever the defaults of this run are, until it is noted what may be torn by them:
        # another crash may come before.
        is_kept = _FLUSH in self.found and not clean
        self._kept = {_FLUSH: self.found[_FLUSH]} if is_kept else {}

    def note_torn(self, torn: Collection[TornProducer]) -> None:
        """Note whose transactions may be torn; after that the last run's defaults are not needed.

        Raises:
            StorageError: The disk failed or is full; what was noted stays.
        """
        self._note({**self._of_this_run, **_render_torn(torn)})
        self.torn = frozenset(torn)
        self._kept = {}

    def was_durable(self, configs: Mapping[str, str]) -> bool:
        """Tell whether a topic with these configs synced what it acknowledged before a crash."""
        return _FLUSH in configs or _FLUSH not in self._kept

    def wanted(self, defaults: TopicConfig) -> dict[str, str]:
        """Return what the journal has to say before these defaults come into force."""
        return {**self._kept, **_facts(defaults), **_render_torn(self.torn)}

    def write(self, defaults: TopicConfig, before: Callable[[], None]) -> None:
        """Note these defaults, unless they are noted already.

        Args:
            defaults: What holds for topics that do not say otherwise.
            before: Writes the log starts down that follow from the note so far.

        Raises:
            StorageError: The disk failed or is full.
        """
        wanted = self.wanted(defaults)
        self._of_this_run = _facts(defaults)
        if wanted != self._journal.image.noted:
            before()
            self._note(wanted)

    def _note(self, wanted: Mapping[str, str]) -> None:
        image = self._journal.image
        if wanted != image.noted:
            self._journal.record(broker_configured(image.broker_configs, wanted))


def _render_torn(torn: Collection[TornProducer]) -> dict[str, str]:
    rendered = " ".join(f"{each.producer_id}:{each.producer_epoch}" for each in sorted(torn))
    return {_TORN: rendered} if rendered else {}


def _read_torn(rendered: str) -> frozenset[TornProducer]:
    return frozenset(TornProducer(*map(int, each.split(":"))) for each in rendered.split())
