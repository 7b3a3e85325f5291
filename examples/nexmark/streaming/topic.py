"""The topic `nexmark` as streams of people, auctions and bids.

This file alone decides how records become rows, and by what they have their time. It asks nothing.
"""

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from examples.nexmark.model import AUCTION, BID, PERSON
from headwater import functions as hf

HIDDEN = "__hw"
"""What `hf.watermark` adds, and `select` has to keep."""

_KINDS = {"person": PERSON, "auction": AUCTION, "bid": BID}
_PLACE = ("topic", "partition", "offset", "timestamp")
_NOT_IN_JSON = ("append_time", "partition", "offset")


@dataclass(frozen=True)
class Topic:
    """Records, and how they are to be computed with.

    Attributes:
        rows: The records as the source gives them.
        delay: By how much events may come out of order.
        buckets: Into how many parts state is cut.
    """

    rows: DataFrame
    delay: str = "4 seconds"
    buckets: int = 64

    def bids(self) -> DataFrame:
        """Return bids as they come, for those who need no time."""
        return self._decoded("bid").select("bid.*", *_PLACE)

    def timed_bids(self, time: str = "date_time") -> DataFrame:
        """Return bids with a watermark on when they were made, or on the record's `timestamp`."""
        return self.bids().transform(hf.watermark(time, self.delay))

    def timed(self, *kinds: str) -> DataFrame:
        """Return events of several kinds with one watermark; of each row one kind is not null."""
        times = [F.col(f"{kind}.date_time") for kind in kinds]
        rows = self._decoded(*kinds).withColumn("date_time", F.coalesce(*times))
        return rows.transform(hf.watermark("date_time", self.delay))

    def _decoded(self, *kinds: str) -> DataFrame:
        fields = [StructField(kind, _struct(_KINDS[kind])) for kind in kinds]
        is_one = " OR ".join(f"{kind} IS NOT NULL" for kind in kinds)
        return self.rows.transform(hf.json(StructType(fields))).where(is_one)


def _struct(columns: pa.Schema) -> StructType:
    """Return what JSON has of a kind of events: all but where the log has put them."""
    return from_arrow_schema(
        pa.schema([pa.field(f.name, f.type) for f in columns if f.name not in _NOT_IN_JSON])
    )
