"""What a start must know of the defaults that held before it.

This file alone decides which defaults of the broker are noted in the journal. They come from its
settings, which may have changed when it starts again, while what the last run did with them stays
true: log starts that readers were told must not go back, and where records were acknowledged before
they were synced, a transaction that a crash has found open may have lost some.

The note stands in the journal, in the entry of the change that brings the defaults into force, or,
for those of a start, in an entry of its own before anything happens by them. So no note is there
for a change that was refused. Where there is nothing to know, the note is empty.
"""

from collections.abc import Callable, Mapping
from typing import Final

from headwater.base.settings import TopicConfig
from headwater.log.manifest import Manifest, broker_configured

_OVERFLOW: Final[tuple[str, ...]] = ("headwater.overflow", "headwater.overflow.bytes")
_FLUSH: Final = "flush.messages"


def _facts(defaults: TopicConfig) -> dict[str, str]:
    """Return what is to be noted of these defaults, by Kafka's names of topic configs."""
    keys = _OVERFLOW if defaults.headwater_overflow == "drop" else ()
    if not defaults.is_durable:
        keys = (*keys, _FLUSH)
    return {key: defaults.render(key) for key in keys}


class Note:
    """The note of a data directory.

    Attributes:
        found: What the last run had noted.
    """

    def __init__(self, journal: Manifest, *, clean: bool) -> None:
        """Read it; ``clean`` tells whether the last run has ended cleanly."""
        self._journal = journal
        self.found = journal.image.noted
        self._of_this_run: dict[str, str] = {}
        # Noted whatever the defaults of this run are: transactions that may have lost records are
        # aborted, and another crash may come before that is durable.
        is_kept = _FLUSH in self.found and not clean
        self._kept = {_FLUSH: self.found[_FLUSH]} if is_kept else {}

    def forget_last_run(self) -> None:
        """Let the next start judge by the defaults of this run alone.

        Raises:
            StorageError: The disk failed or is full.
        """
        image = self._journal.image
        if image.noted != self._of_this_run:
            self._journal.record(broker_configured(image.broker_configs, self._of_this_run))
        self._kept = {}

    def was_durable(self, configs: Mapping[str, str]) -> bool:
        """Tell whether a topic with these configs synced what it acknowledged before a crash."""
        return _FLUSH in configs or _FLUSH not in self._kept

    def wanted(self, defaults: TopicConfig) -> dict[str, str]:
        """Return what the journal has to say before these defaults come into force."""
        return {**self._kept, **_facts(defaults)}

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
        image = self._journal.image
        if wanted != image.noted:
            before()
            self._journal.record(broker_configured(image.broker_configs, wanted))
