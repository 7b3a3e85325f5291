"""Keys and values of internal topics and control batches, as classes.

This file alone decides which classes exist: one per message of `records.table`, made when it is
first imported or asked for. It knows no version and no byte. Types are in `records.pyi`.
"""

from pathlib import Path

from headwater.base.schema import Catalogue

CATALOGUE = Catalogue(Path(__file__).with_name("records.table"), __name__)

__getattr__ = CATALOGUE.attribute
