"""Sets and counts of values, as lists of their canonical bytes.

This file alone decides how the values of groups are gathered: each group has its own ones in the
order of their bytes, so that one set has one form.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Int64s
from headwater.streams.kernel.keys import check_key_type, encode_keys
from headwater.streams.windows.aggregation import Rows

ITEMS = pa.list_(pa.binary())


class Gathered(NamedTuple):
    """Values of groups, each once a group.

    Attributes:
        owners: The group of each, ascending.
        items: Its bytes, ascending within a group.
        places: For each value that was gathered, which one it is.
    """

    owners: Int64s
    items: pa.Array
    places: npt.NDArray[np.int64]


def check_item_type(name: str, kind: pa.DataType) -> None:
    """Refuse values that cannot be told equal by their bytes.

    Raises:
        KeyTypeError: They cannot.
    """
    check_key_type(f"of {name}", kind)


def items_of(rows: Rows) -> tuple[Int64s, pa.Array]:
    """Return the group and the bytes of each value that is not null."""
    assert rows.values is not None
    values, codes = rows.values, rows.codes
    if values.null_count:
        codes, values = codes[arrays.validity(values).view(np.bool_)], values.drop_null()
    return codes, encode_keys([values], len(values))


def gathered(codes: Int64s, items: pa.Array) -> Gathered:
    """Bring equal values of a group together."""
    coded = items.dictionary_encode()
    distinct = len(coded.dictionary)
    order = pc.sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(distinct, np.int64)
    ranks[order] = np.arange(distinct)
    pairs = codes * max(distinct, 1) + ranks[coded.indices.to_numpy()]
    found, places = np.unique(pairs, return_inverse=True)
    owners, rank = np.divmod(found, max(distinct, 1))
    return Gathered(owners, coded.dictionary.take(pa.array(order[rank])), places)
