"""What a query does in a campaign: the rows it is given, and what must be in the log afterwards.

This file alone decides that for queries over text files, one a batch: one copies their rows into a
topic, one says how often there was each word so far, in update mode. What dies where, and in which
order things are tried, the campaign decides.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Protocol

from tests.crash.broker.machine import Book
from tests.streams.sink.reading import committed, values

TOPIC = "out"
UPDATES = "updates"
_WORDS = 11
_FIRST_S = 1_700_000_000


class Work(Protocol):
    """What a query does.

    Attributes:
        name: By which the driver knows it.
        phases: The places at which something dies.
    """

    name: str
    phases: tuple[str, ...]

    def prepare(self, bootstrap: str) -> None:
        """Make ready what the first round needs; the broker runs."""

    def add_batch(self, number: int, bootstrap: str) -> None:
        """Add the input of one batch."""

    def next_batch_id(self) -> int:
        """Return which batch comes next."""

    def judge(self, bootstrap: str, book: Book) -> None:
        """Hold what is in the log against what should be."""

    def size(self) -> int:
        """Return how many rows were put in so far."""


def next_batch_id(offsets: Path) -> int:
    """Return the batch after the last one that Spark has written down in its checkpoint."""
    if not offsets.exists():
        return 0
    return 1 + max(_numbers(offsets), default=-1)


def _numbers(offsets: Path) -> list[int]:
    return sorted(int(path.name) for path in offsets.iterdir() if path.name.isdecimal())


class Copying:
    """Rows of text files, each unlike all others, as they are."""

    name = "copy"

    def __init__(self, folder: Path, phases: tuple[str, ...]) -> None:
        self.phases = phases
        self._offsets = folder / "checkpoint" / "offsets"
        self._input = folder / "input"
        self._rows: list[bytes] = []
        self._files = 0

    def prepare(self, bootstrap: str) -> None:
        self._input.mkdir(parents=True)

    def add_batch(self, number: int, bootstrap: str) -> None:
        count = 1 + (self._files * 37 + number) % 120
        rows = [f"{self._files}/{each}/" + "x" * (each % 50) for each in range(count)]
        self._add_file(rows)
        self._rows += [row.encode() for row in rows]

    def _add_file(self, rows: list[str]) -> None:
        hidden = self._input / f".{self._files}"
        hidden.write_text("".join(f"{row}\n" for row in rows))
        # Spark takes files in the order of their times, and two may be of one moment.
        os.utime(hidden, times=(_FIRST_S + self._files,) * 2)
        hidden.rename(self._input / f"{self._files:05}.txt")
        self._files += 1

    def next_batch_id(self) -> int:
        return next_batch_id(self._offsets)

    def judge(self, bootstrap: str, book: Book) -> None:
        found = Counter(values(bootstrap, TOPIC))
        expected = Counter(self._rows)
        lost, more = expected - found, found - expected
        book.expect(not lost, "lost", f"{lost.total()} rows, as {list(lost)[:3]}")
        book.expect(not more, "doubled", f"{more.total()} rows, as {list(more)[:3]}")
        book.counts["lost"] += lost.total()
        book.counts["acked"] = len(self._rows)

    def size(self) -> int:
        return len(self._rows)


class Counting(Copying):
    """Words of which each file has some, and how often each was there so far.

    A run that dies after Spark has taken the next file, and before it has planned the batch, leaves
    that file to be read with the one after it. So the checkpoint says which files a batch has had.
    """

    name = UPDATES

    def __init__(self, folder: Path, phases: tuple[str, ...]) -> None:
        super().__init__(folder, phases)
        self._words: list[list[str]] = []
        self._counts: Counter[str] = Counter()
        self._counted_batches = 0
        self._counted_files = 0

    def add_batch(self, number: int, bootstrap: str) -> None:
        count = 1 + (self._files * 5 + number) % 30
        words = [f"word {(self._files * 3 + each * each) % _WORDS}" for each in range(count)]
        self._add_file(words)
        self._words.append(words)

    def judge(self, bootstrap: str, book: Book) -> None:
        for number in range(self._counted_batches, self.next_batch_id()):
            self._count(_files_until(self._offsets / str(number)))
        book.expect(self._counted_files == self._files, "stuck", "some files were not read")
        super().judge(bootstrap, book)
        newest = {record.key: json.loads(record.value) for record in committed(bootstrap, TOPIC)}
        found = Counter({row["value"]: row["n"] for row in newest.values()})
        book.expect(found == self._counts, "disordered", f"{found} are not {self._counts}")

    def _count(self, until: int) -> None:
        """Add what is to come of the next batch, which has the files before this number."""
        words = [word for each in self._words[self._counted_files : until] for word in each]
        self._counts.update(words)
        # Of each word that the batch has, and of no other, there is one row: as Spark writes it.
        self._rows += [
            f'{{"value":"{word}","n":{self._counts[word]}}}'.encode() for word in sorted({*words})
        ]
        self._counted_files = until
        self._counted_batches += 1


def _files_until(offsets: Path) -> int:
    """Return how many files Spark has read by the end of a batch."""
    last: dict[str, int] = json.loads(offsets.read_text(encoding="utf-8").splitlines()[-1])
    return last["logOffset"] + 1
