"""Where everything is kept that was given no other place.

This file alone decides the name of the data directory. Brokers, commands and pipelines that are
started in the same folder find each other by it.
"""

from typing import Final

DEFAULT_DATA: Final = "headwater-data"
