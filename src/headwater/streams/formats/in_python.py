"""DataFrames through a format that Python decodes.

This file alone decides how Spark is given the work: whole batches of Arrow, in the processes that
Spark starts. What is done with a batch stands in `batches`, and is tested without Spark.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from headwater.streams.formats.batches import (
    DECODED,
    ERROR,
    Form,
    decoded_batches,
    encoded_batches,
)
from headwater.streams.formats.decoding import Decoding, Transform, Wish, transform
from headwater.streams.formats.errors import FormatError
from headwater.streams.formats.looking import looking
from headwater.streams.formats.types import quoted, spark_type
from headwater.streams.formats.writing import FIELDS, Target, carried, prefixed, record_of


def decoding_transform(what: str, form: Form, wish: Wish) -> Transform:
    """Return the function that decodes, for `DataFrame.transform`."""
    declared = spark_type(form.arrow_type)
    names = [field.name for field in form.arrow_type]

    def attempt(frame: DataFrame) -> DataFrame:
        schema = StructType(
            [
                *frame.schema.fields,
                StructField(DECODED, DataType.fromDDL(declared)),
                StructField(ERROR, DataType.fromDDL("string")),
            ]
        )
        return frame.mapInArrow(
            cast("Any", partial(_decoded, column=wish.column, form=form)), schema
        )

    return transform(Decoding(what, names, attempt, lambda dead: dead.drop(DECODED)), wish)


def encoding_transform(form: Form, needed: Sequence[str], target: Target) -> Transform:
    """Return the function that makes records for the sink, for `DataFrame.transform`.

    Args:
        form: The format with its schema.
        needed: Fields that cannot be left out.
        target: What records have besides their values.
    """
    types = {field.name: spark_type(field.type) for field in form.arrow_type}

    @looking
    def encode(frame: DataFrame) -> DataFrame:
        names = [name for name in types if name in frame.columns]
        missing = [name for name in needed if name not in names]
        if missing or not names:
            raise FormatError(
                f"the schema has fields {missing or list(types)}, but there are no such columns",
                hint=f"there are {frame.columns}",
            )
        given, _ = target.prepared(frame, names)
        # Cast here: what an encoder would refuse as a bigint is often an int in the schema.
        fields = [F.col(quoted(name)).cast(types[name]).alias(name) for name in names]
        others = [prefixed(name) for name in carried(given)]
        plain = given.select(*others, F.struct(*fields).alias(FIELDS))
        kept = [field for field in plain.schema.fields if field.name != FIELDS]
        schema = StructType([*kept, StructField("value", DataType.fromDDL("binary"))])
        work = cast("Any", partial(_encoded, carried=others, form=form))
        return record_of(plain.mapInArrow(work, schema))

    return encode


def _decoded(
    batches: Iterable[pa.RecordBatch], *, column: str, form: Form
) -> Iterator[pa.RecordBatch]:
    return decoded_batches(batches, column, form)


def _encoded(
    batches: Iterable[pa.RecordBatch], *, carried: list[str], form: Form
) -> Iterator[pa.RecordBatch]:
    return encoded_batches(batches, carried, FIELDS, form)
