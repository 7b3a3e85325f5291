"""What is computed on the log, by Spark through PySpark.

Takes: topics of any broker that speaks Kafka's protocol, and DataFrames.
Gives: `format("headwater")` as a source and a sink, functions from DataFrame to DataFrame, and the
    means to run them as pipelines.
May import: `headwater.delivery.client`, `headwater.base`; never the log or the broker themselves.
Start reading at: `headwater.streams.data_source`, which Spark finds by its name.
"""
