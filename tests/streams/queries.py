"""Queries that come to their end by themselves.

This file alone decides what counts as having ended well.
"""

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery


def maybe_error(query: StreamingQuery, within_s: int) -> str | None:
    """Wait for the end of a query; return what it failed of, None where it did not fail."""
    try:
        ended = query.awaitTermination(within_s)
    except PySparkException as error:
        return str(error)
    finally:
        query.stop()
    return None if ended else "it did not come to its end"
