"""Headwater: a durable, partitioned log that speaks the Kafka protocol.

This file alone decides what `import headwater` offers. It must not import any room when it is
loaded: a name is fetched from its home on first use.

Takes: nothing.
Gives: the version and the public names of the rooms.
May import: every room, but only on first use of a name.
Start reading at: `headwater.base`, where the data's way begins.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError
    from headwater.delivery.client.cluster import Cluster
    from headwater.delivery.client.consumer import Consumer, Message
    from headwater.delivery.client.group import GroupConsumer
    from headwater.delivery.client.producer import Producer
    from headwater.streams.joins.table_source import table, tables
    from headwater.streams.running.pipeline import pipeline, topic
    from headwater.streams.session import session

__all__ = [
    "Cluster",
    "Consumer",
    "ErrorCode",
    "GroupConsumer",
    "HeadwaterError",
    "KafkaError",
    "Message",
    "Producer",
    "__version__",
    "pipeline",
    "session",
    "table",
    "tables",
    "topic",
]

__version__ = "0.1.0.dev0"

_HOMES = {
    "Cluster": "headwater.delivery.client.cluster",
    "Consumer": "headwater.delivery.client.consumer",
    "ErrorCode": "headwater.base.errors",
    "GroupConsumer": "headwater.delivery.client.group",
    "HeadwaterError": "headwater.base.errors",
    "KafkaError": "headwater.base.errors",
    "Message": "headwater.delivery.client.consumer",
    "Producer": "headwater.delivery.client.producer",
    "pipeline": "headwater.streams.running.pipeline",
    "session": "headwater.streams.session",
    "table": "headwater.streams.joins.table_source",
    "tables": "headwater.streams.joins.table_source",
    "topic": "headwater.streams.running.pipeline",
}


if not TYPE_CHECKING:  # a type checker must go on seeing names that do not exist

    def __getattr__(name: str) -> object:
        """Fetch a public name from its home, once."""
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib  # noqa: PLC0415 - not needed by those who only want the version

        try:
            module = importlib.import_module(home)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pyspark":
                raise
            session = importlib.import_module("headwater.streams.session")
            session.check_spark()  # says what to install
            raise
        found: object = getattr(module, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """List the public names, fetched or not."""
    return sorted({*globals(), *_HOMES})
