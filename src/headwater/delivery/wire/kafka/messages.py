"""Kafka's requests, responses and headers, as classes.

This file alone decides which classes exist: one per message of `messages.table`, made when it is
first imported or asked for. It knows no version and no byte. Types are in `messages.pyi`.
"""

from pathlib import Path

from headwater.base.schema import Catalogue

CATALOGUE = Catalogue(Path(__file__).with_name("messages.table"), __name__)

__getattr__ = CATALOGUE.attribute
