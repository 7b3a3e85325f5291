"""What is left of a query that has no checkpoint any more.

This file alone decides where that is: in the topics of ours that remember queries.
"""

import logging

from headwater.base.errors import HeadwaterError
from headwater.delivery.client.cluster import Cluster
from headwater.streams.sink import marker_log
from headwater.streams.time import time_log

_LOG = logging.getLogger(__name__)


def forget_query(cluster: Cluster, query_id: str) -> None:
    """Let the broker forget a query; what it does not forget is in nobody's way."""
    for forget in (marker_log.forget_query, time_log.forget_query):
        try:
            forget(cluster, query_id)
        except HeadwaterError as error:
            _LOG.warning("the broker still remembers query %s: %s", query_id, error.message)
