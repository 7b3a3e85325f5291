"""The Spark session of this process, and a broker."""

from tests.streams.conftest import embedded_broker, spark

__all__ = ["embedded_broker", "spark"]
