"""How far a query has read its topics, asked of the process that runs the query.

This file alone decides how a time reader learns the positions of the sources beside it. Spark asks
each source of a query in a process of its own, tells none of them about the others, and what tasks
see is what filters have left. But the JVM has the offsets that the query's checkpoint has
committed, those of every source, Spark's own included. So the process in which `hf.watermark` was
called, and which drives the JVM, answers the time reader on a local socket.

A time reader says who it is by its clock's id, which is in its own committed offset. Copies of a
checkpoint have the same id, but no JVM runs two of them: Spark refuses to. It is told of each
source by itself, with the brokers, for topics of two clusters may have the same name, and with what
the source reads: how far a sibling has come that reads the same topic in other parts says nothing
of the rows that a clock is for. Of each clock of the query it is told under which name its tasks
report, and what its sources read.

The socket lies in a folder that only its user may enter, in /tmp where the temporary directory has
too long a name for a socket. One connection is one thread here: a query has one for each of its
clocks.
"""

import contextlib
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Client, Connection, Listener
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.streams.errors import OptionError
from headwater.streams.options import bootstrap_of, is_time_role, names_bootstrap
from headwater.streams.time.errors import QueryUnknownError
from headwater.streams.time.fold import Place
from headwater.streams.time.reader_options import (
    Read,
    read_as_json,
    read_from_json,
    read_of,
    read_time_options,
)
from headwater.streams.time.resuming import ClockAt, Identity
from headwater.streams.time.time_offset import parse_time_offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AGAIN: Final = "start the query again; it goes on where it was"
_PAUSE_S: Final = 0.1
_SHORT_FOLDER: Final = "/tmp"  # noqa: S108 - a folder is made in it that nobody else may enter
# An answer takes a millisecond, unless the process is stopped or computes without a break.
_PATIENCE_S: Final = 60.0


class QueryPositions(NamedTuple):
    """How far a query has read.

    Attributes:
        query_id: The query.
        positions: The next offset to read, of each partition that a source has read or begun at.
        clocks: What the checkpoint has of each clock of the query, and which clock is there now.
    """

    query_id: str
    positions: dict[Place, int]
    clocks: tuple[ClockAt, ...] = ()


class Stand(NamedTuple):
    """Where one source of a query stands.

    Attributes:
        bootstrap: The brokers that it reads from; None where Spark does not tell.
        offset: What it has committed.
        name: Under which name tasks report, if it is a time reader; None also where Spark does not
            tell.
        reads: What its sources read then, else what it reads itself, as `read_as_json` has it; None
            where Spark does not tell.
        is_default: Whether it names no brokers; `bootstrap` is where the environment points now.
    """

    bootstrap: str | None
    offset: str
    name: str | None = None
    reads: Sequence[Mapping[str, Any]] | None = None
    is_default: bool = False

    def is_among(self, reads: Iterable[Read]) -> bool:
        """Tell whether it is a source that reads one of these."""
        own = () if self.name is not None or self.reads is None else self.reads
        return any(read_from_json(said).is_paced_as(read) for said in own for read in reads)

    def maybe_identity(self) -> Identity | None:
        """Return which clock it is, if it is one."""
        if self.name is None or self.reads is None:
            return None
        return Identity.of(self.name, map(read_from_json, self.reads))


def clocks_in(stands: Iterable[Stand]) -> tuple[ClockAt, ...]:
    """Read those of a query's offsets that time readers have written."""
    found = ((stand, _maybe_object(stand.offset)) for stand in stands)
    return tuple(
        ClockAt(parse_time_offset(said), stand.maybe_identity())
        for stand, said in found
        if isinstance(said.get("clock"), str)
    )


def positions_in(
    stands: Iterable[Stand], bootstrap: str, reads: Sequence[Read] = ()
) -> dict[Place, int]:
    """Read how far a clock's sources have come: ours, and Spark's own for Kafka.

    Another cluster may have a topic of the same name, which says nothing about this one's. Where
    two of the clock's sources read one partition, what both have read counts; so it does for any
    two that cannot be told apart. A source that names no brokers counts also where the environment
    names others since the clock was made, if without it the clock would have no sources.

    Args:
        stands: Where all sources of the query stand.
        bootstrap: The clock's brokers.
        reads: What the clock's sources read.
    """
    everywhere = list(stands)
    here = [stand for stand in everywhere if stand.bootstrap in {None, bootstrap}]
    if not _are_all_read(reads, here):
        here = [stand for stand in everywhere if stand.is_default or stand in here]
    if reads and _are_all_read(reads, here):
        here = [stand for stand in here if stand.reads is None or stand.is_among(reads)]
    found: dict[Place, int] = {}
    for stand in here:
        for place, offset in _positions(_maybe_object(stand.offset)):
            found[place] = min(offset, found.get(place, offset))
    return found


def _are_all_read(reads: Sequence[Read], stands: Sequence[Stand]) -> bool:
    return all(any(stand.is_among([read]) for stand in stands) for read in reads)


def _positions(said: dict[str, Any]) -> Iterable[tuple[Place, int]]:
    if isinstance(said.get("version"), int):
        topics = {
            topic: each.get("partitions", {}) for topic, each in said.get("topics", {}).items()
        }
    else:
        topics = said
    for topic, numbers in topics.items():
        if isinstance(numbers, dict):
            for number, offset in numbers.items():
                if str(number).isdigit() and isinstance(offset, int):
                    yield (topic, int(number)), offset


def _maybe_object(text: str) -> dict[str, Any]:
    """Read an offset; what another source has written may be anything."""
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


# --- in the process that drives the JVM ---------------------------------------------------------


def _listener() -> Listener:
    """Listen on a socket that lies in a folder of this user alone, which goes with this process."""
    try:
        return Listener(family="AF_UNIX")
    except OSError:
        # Some 100 characters are the longest name that a socket may have.
        folder = tempfile.mkdtemp(prefix="headwater-", dir=_SHORT_FOLDER)
        # Not by atexit: a process that is forked off must leave the folder where it is.
        Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=0)
        return Listener(f"{folder}/positions", family="AF_UNIX")


class _Server:
    """Answers time readers for as long as this process lives."""

    def __init__(self, session: "SparkSession") -> None:
        self.session = session
        self._listener = _listener()
        self.address = str(self._listener.address)
        threading.Thread(target=self._accept, name="headwater-positions", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                # This process has too many files open, for one; the asker says so if it lasts.
                time.sleep(_PAUSE_S)
                continue
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        # A time reader lives as long as one run of its query: it is looked for once.
        query: _Query | None = None
        with connection:
            while True:
                try:
                    clock_id = connection.recv_bytes().decode()
                except (EOFError, OSError):
                    return
                try:
                    query = query or _maybe_query(self.session, clock_id)
                    answer = {} if query is None else query.answer()
                except Exception as error:  # noqa: BLE001 - whatever it is, the asker must know
                    answer = {"error": repr(error)}
                connection.send_bytes(json.dumps(answer).encode())


class _Query(NamedTuple):
    """A query that runs in the JVM."""

    query_id: str
    running: Any
    sources: Sequence[tuple[Any, Mapping[str, str] | None]]

    def answer(self) -> dict[str, Any]:
        committed = self.running.committedOffsets()
        stands = []
        for stream, options in self.sources:
            offset = committed.get(stream)
            if offset.isDefined():
                stands.append(_stand(offset.get().json(), options))
        if len(stands) < committed.size():
            raise LookupError("the plan of the query does not show all of its sources")
        return {"query": self.query_id, "sources": stands}


def _stand(offset: str, options: Mapping[str, str] | None) -> Stand:
    if options is None:
        return Stand(None, offset)
    stand = Stand(bootstrap_of(options), offset, is_default=not names_bootstrap(options))
    with contextlib.suppress(OptionError):
        if is_time_role(options):
            told = read_time_options(options)
            return stand._replace(name=told.name, reads=list(map(read_as_json, told.reads)))
        # Whether it waits for transactions makes no difference here.
        return stand._replace(reads=[read_as_json(read_of(options, read_committed=True))])
    return stand


def _maybe_query(session: "SparkSession", clock_id: str) -> _Query | None:
    """Find the query that has a clock."""
    # Not by session.streams: a session has its own list, and two sessions may share a context.
    active = session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001
    for key in list(active):
        running = active.get(key)
        if running is not None and any(
            _maybe_object(text).get("clock") == clock_id for text in _committed(running)
        ):
            return _Query(running.id().toString(), running, list(_sources(running)))
    return None


def _sources(
    running: Any,  # noqa: ANN401 - of the JVM
) -> Iterator[tuple[Any, Mapping[str, str] | None]]:
    """Yield the streams of a query, with their options; None where Spark does not tell them."""
    leaves = running.logicalPlan().collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        kind = leaf.getClass().getSimpleName()
        if kind == "StreamingDataSourceV2ScanRelation":
            given = leaf.relation().options().asCaseSensitiveMap()
            yield leaf.stream(), {name: given[name] for name in given}
        elif kind == "StreamingExecutionRelation":
            yield leaf.source(), None


def _committed(running: Any) -> list[str]:  # noqa: ANN401 - an object of the JVM
    """Return the offsets that a query has committed, of each of its sources."""
    texts: str = running.committedOffsets().values().mkString("\n")
    return texts.split("\n")


_lock = threading.Lock()
_servers: list[_Server] = []


def serve_positions(session: "SparkSession") -> str:
    """Answer the time readers of a session's queries; return the address to ask at."""
    with _lock:
        if not _servers:
            _servers.append(_Server(session))
        _servers[0].session = session
        return _servers[0].address


# --- in the process of a time reader ------------------------------------------------------------


class PositionsClient:
    """Asks the driver of a query, in one run of it, how far the query has read.

    Attributes:
        address: Where the driver answers.
        bootstrap: The brokers whose topics are asked about, as the sources name them.
        reads: What the sources read that are asked about.
    """

    def __init__(self, address: str, bootstrap: str, reads: Sequence[Read] = ()) -> None:
        """Prepare to ask; the driver is not asked yet."""
        self.address = address
        self.bootstrap = bootstrap
        self.reads = reads
        self._connection: Connection | None = None

    def ask(self, clock_id: str) -> QueryPositions:
        """Return how far the query of a clock has read.

        Raises:
            QueryUnknownError: The driver does not answer, or does not know.
        """
        try:
            if self._connection is None:
                self._connection = Client(self.address, family="AF_UNIX")
            self._connection.send_bytes(clock_id.encode())
            if not self._connection.poll(_PATIENCE_S):
                raise TimeoutError(f"nothing for {_PATIENCE_S} s")
            said = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            self.close()
            raise QueryUnknownError(
                f"the process that started this query does not answer: {error!r}", hint=_AGAIN
            ) from error
        if "error" in said:
            raise QueryUnknownError(
                f"Spark does not tell how far this query has read: {said['error']}",
                hint="use a release of Spark that Headwater is tested with: 4.3",
            )
        if "query" not in said:
            raise QueryUnknownError(
                "no active query of this Spark session has this watermark", hint=_AGAIN
            )
        stands = [Stand(*each) for each in said["sources"]]
        return QueryPositions(
            said["query"],
            positions_in(stands, self.bootstrap, self.reads),
            clocks_in(stands),
        )

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
