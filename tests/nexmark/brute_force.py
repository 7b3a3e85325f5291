"""The queries of Nexmark once more, by loops over rows: so slow and plain that they can be read.

This file alone decides the answers that DuckDB's are held against. It shares nothing with the SQL.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from examples.nexmark.model import Events
from tests.nexmark.oracle import Row

Record = dict[str, Any]
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TEN_SECONDS: Final = timedelta(seconds=10)
TWO_SECONDS: Final = timedelta(seconds=2)


class Rows:
    """The events as lists of dicts."""

    def __init__(self, events: Events) -> None:
        self.people: list[Record] = events.person.to_pylist()
        self.auctions: list[Record] = events.auction.to_pylist()
        self.bids: list[Record] = events.bid.to_pylist()


def window_of(time: datetime, length: timedelta = TEN_SECONDS) -> datetime:
    return EPOCH + (time - EPOCH) // length * length


def place(row: Record) -> tuple[int, int]:
    return row["partition"], row["offset"]


def day(row: Record) -> str:
    return str(row["date_time"].date())


def values(row: Record, *names: str) -> Row:
    return tuple(row[name] for name in names)


def winners(rows: Rows) -> Iterator[tuple[Record, Record]]:
    """Each auction that has a bid in time, and the one that nobody outbids."""
    for auction in rows.auctions:
        best = None
        for bid in rows.bids:
            if bid["auction"] != auction["id"]:
                continue
            if not auction["date_time"] <= bid["date_time"] <= auction["expires"]:
                continue
            if best is None or bid["price"] > best["price"]:
                best = bid
            elif bid["price"] == best["price"]:
                earlier = (bid["date_time"], place(bid)) < (best["date_time"], place(best))
                best = bid if earlier else best
        if best is not None:
            yield auction, best


def q4(rows: Rows) -> Iterator[Row]:
    finals = defaultdict(list)
    for auction, bid in winners(rows):
        finals[auction["category"]].append(bid["price"])
    for category, prices in finals.items():
        yield category, sum(prices) / len(prices)


def q5(rows: Rows) -> Iterator[Row]:
    if not rows.bids:
        return
    start = window_of(min(bid["date_time"] for bid in rows.bids), TWO_SECONDS) - TEN_SECONDS
    last = max(bid["date_time"] for bid in rows.bids)
    while start <= last:
        counts: dict[int, int] = defaultdict(int)
        for bid in rows.bids:
            if start <= bid["date_time"] < start + TEN_SECONDS:
                counts[bid["auction"]] += 1
        for auction, count in counts.items():
            if all(count >= other for other in counts.values()):
                yield auction, count, start, start + TEN_SECONDS
        start += TWO_SECONDS


def q6(rows: Rows) -> Iterator[Row]:
    sold = defaultdict(list)
    for auction, bid in winners(rows):
        sold[auction["seller"]].append((auction["expires"], auction["id"], bid["price"]))
    for seller, auctions in sold.items():
        prices = [price for _, _, price in sorted(auctions)[-10:]]
        yield seller, sum(prices) / len(prices)


def q7(rows: Rows) -> Iterator[Row]:
    for rivals in grouped(rows.bids, lambda bid: (window_of(bid["date_time"]),)).values():
        for bid in rivals:
            if any(bid["price"] < rival["price"] for rival in rivals):
                continue
            yield values(bid, "auction", "bidder", "price", "date_time", "extra")


def q8(rows: Rows) -> Iterator[Row]:
    for person in rows.people:
        start = window_of(person["date_time"])
        if any(
            auction["seller"] == person["id"] and window_of(auction["date_time"]) == start
            for auction in rows.auctions
        ):
            yield person["id"], person["name"], start


def q9(rows: Rows) -> Iterator[Row]:
    of_auction = (
        "id item_name description initial_bid reserve date_time expires seller category extra"
    )
    for auction, bid in winners(rows):
        yield (
            *values(auction, *of_auction.split()),
            *values(bid, "auction", "bidder", "price", "date_time", "extra"),
        )


def sessions(times: Iterable[datetime]) -> Iterator[list[datetime]]:
    open_session: list[datetime] = []
    for time in sorted(times):
        if open_session and time - open_session[-1] > TEN_SECONDS:
            yield open_session
            open_session = []
        open_session.append(time)
    yield open_session


def q11(rows: Rows) -> Iterator[Row]:
    for bidder in {bid["bidder"] for bid in rows.bids}:
        for session in sessions(b["date_time"] for b in rows.bids if b["bidder"] == bidder):
            yield bidder, len(session), session[0], session[-1] + TEN_SECONDS


def q12(rows: Rows) -> Iterator[Row]:
    counts: dict[tuple[int, datetime], int] = defaultdict(int)
    for bid in rows.bids:
        counts[bid["bidder"], window_of(bid["append_time"])] += 1
    for (bidder, start), count in counts.items():
        yield bidder, count, start, start + TEN_SECONDS


def levels(bids: list[Record]) -> list[list[Record]]:
    """All bids, then those of each level of price."""
    return [
        bids,
        [bid for bid in bids if bid["price"] < 10_000],
        [bid for bid in bids if 10_000 <= bid["price"] < 1_000_000],
        [bid for bid in bids if bid["price"] >= 1_000_000],
    ]


def report(bids: list[Record]) -> Row:
    """The twelve counts of q15 and q16."""
    parts = levels(bids)
    return (
        *(len(part) for part in parts),
        *(len({bid["bidder"] for bid in part}) for part in parts),
        *(len({bid["auction"] for bid in part}) for part in parts),
    )


def grouped(bids: list[Record], by: Callable[[Record], Row]) -> dict[Row, list[Record]]:
    groups = defaultdict(list)
    for bid in bids:
        groups[by(bid)].append(bid)
    return groups


def q15(rows: Rows) -> Iterator[Row]:
    for key, bids in grouped(rows.bids, lambda bid: (day(bid),)).items():
        yield *key, *report(bids)


def q16(rows: Rows) -> Iterator[Row]:
    for key, bids in grouped(rows.bids, lambda bid: (bid["channel"], day(bid))).items():
        last = max((bid["date_time"].hour, bid["date_time"].minute) for bid in bids)
        yield *key, "{:02d}:{:02d}".format(*last), *report(bids)


def q17(rows: Rows) -> Iterator[Row]:
    for key, bids in grouped(rows.bids, lambda bid: (bid["auction"], day(bid))).items():
        prices = [bid["price"] for bid in bids]
        counts = [len(part) for part in levels(bids)]
        mean = sum(prices) / len(prices)
        yield *key, *counts, min(prices), max(prices), mean, sum(prices)


OF_BID: Final = ("auction", "bidder", "price", "channel", "url", "date_time", "extra")


def q18(rows: Rows) -> Iterator[Row]:
    for bids in grouped(rows.bids, lambda bid: (bid["bidder"], bid["auction"])).values():
        yield values(max(bids, key=lambda bid: (bid["date_time"], place(bid))), *OF_BID)


def q19(rows: Rows) -> Iterator[Row]:
    for bids in grouped(rows.bids, lambda bid: (bid["auction"],)).values():
        best = sorted(bids, key=lambda bid: (-bid["price"], place(bid)))[:10]
        for rank, bid in enumerate(best, start=1):
            yield *values(bid, *OF_BID), rank


def q20(rows: Rows) -> Iterator[Row]:
    of_auction = "item_name description initial_bid reserve date_time expires seller category extra"
    for bid in rows.bids:
        for auction in rows.auctions:
            if bid["auction"] == auction["id"] and auction["category"] == 10:
                yield *values(bid, *OF_BID), *values(auction, *of_auction.split())


ANSWERS: Final[dict[str, Callable[[Rows], Iterator[Row]]]] = {
    answer.__name__: answer
    for answer in (q4, q5, q6, q7, q8, q9, q11, q12, q15, q16, q17, q18, q19, q20)
}
