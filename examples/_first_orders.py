"""A pipeline file: the first order of each customer goes on.

Whether a customer has ordered before is state, which Spark keeps beside the offsets. The file names
neither a broker nor a cluster, so it runs anywhere:

    headwater run examples/_first_orders.py
    headwater run examples/_first_orders.py --master spark://cluster:7077 -b kafka-1:9092
"""

from pyspark.sql import functions as F

import headwater as hw

# The checkpoint keeps this number for good: choose it for the cluster that is to come.
spark = hw.session(config={"spark.sql.shuffle.partitions": 2})
orders = (
    spark.readStream.format("headwater")
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 100)
    .load()
)
text = F.upper(F.col("value").cast("string"))
rows = orders.dropDuplicates(["key"]).select("key", text.alias("value"))
firsts = hw.pipeline("firsts", rows).to(hw.topic("firsts"))
