"""What is told of plans. Plans as Spark 4.3 prints them."""

import pytest

from headwater.streams.running.plan_steps import Step, steps


def relation(topics: str) -> str:
    return (
        "~StreamingRelationV2 org.x.Provider@30801f61, headwater, org.x.Table@2c5d3a60, "
        f"[startingOffsets=earliest, kafka.bootstrap.servers=h:1, subscribe={topics}], "
        "[key#0, value#1, topic#2], name=<Unassigned>"
    )


def told(plan: str) -> list[str]:
    """Give the steps as lines, those that keep state with a star."""
    return [
        f"{'  ' * each.depth}{each.verb}: {each.text}{' *' * each.keeps_state}"
        for each in steps(plan)
    ]


def test_a_chain() -> None:
    plan = f"""key: binary, value: string
~Project [key#0, upper(cast(value#1 as string)) AS value#7]
+- ~Filter ((partition#3 = 0) AND isnotnull(key#0))
   +- {relation("a,b")}
"""
    assert steps(plan) == [
        Step(0, "read", "a,b"),
        Step(0, "filter", "partition = 0 and key is not null"),
        Step(0, "select", "value = upper(cast(value as string)), key"),
    ]


def test_what_formats_add_is_one_step() -> None:
    plan = f"""id: bigint
~Project [key#0, __hw_decoded#61.id AS id#67L, __hw_decoded#61.at AS at#70]
+- ~Filter CASE WHEN isnull(__hw_error#62) THEN true ELSE cast(raise_error(X, concat(topic#2,
hint: give dead_letters=TOPIC, or mode='drop' or mode='keep')), NullType) as boolean) END
   +- ~CollectMetrics headwater.decode.2, [count(1) AS records#63L], 21
      +- ~Project [key#0, __hw_decoded#61, isnull(__hw_decoded#61) AS __hw_error#62]
         +- ~Project [key#0, from_json(StructField(id,LongType,true), value#1) AS __hw_decoded#61]
            +- {relation("orders")}
"""
    assert told(plan) == ["read: orders", "decode: id, at"]
    struct = "struct(id, __hw_decoded#61.id, at, __hw_decoded#61.at) AS data#5]"
    first, _, rest = plan.partition("__hw_decoded#61.id AS")
    into = first + struct + rest[rest.index("\n") :]
    assert told(into) == ["read: orders", "decode: data"]


@pytest.mark.parametrize(
    "apart, length, expected",
    [(300_000_000, 300_000_000, "at, 5 minutes"), (1, 90, "at"), (3600, 7200, None)],
)
def test_windows(apart: int, length: int, expected: str | None) -> None:
    start = f"precisetimestampconversion(at#70-T600000ms, TimestampType, LongType) - 0) % {apart})"
    if expected is None:
        apart, length = apart * 1_000_000, length * 1_000_000
        start = start.replace("3600", "3600000000")
        expected = "at, 2 hours, every 1 hour"
    plan = f"""window: struct<start:timestamp,end:timestamp>, n: bigint
~Aggregate [window#90-T600000ms], [window#90-T600000ms, count(1) AS n#76L]
+- ~Project [named_struct(start, (({start}, end, (({start} + {length})) AS window#90-T600000ms]
   +- ~Filter isnotnull(at#70-T600000ms)
      +- ~EventTimeWatermark 88c3595a-896a-4c48-aedc-b65fb71b95c2, at#70: timestamp, 10 minutes
         +- {relation("orders")}
"""
    assert told(plan) == [
        "read: orders",
        "watermark: at, 10 minutes",
        f"window: {expected}",
        "group: by window: n = count(1) *",
    ]


def test_what_is_joined_stands_deeper() -> None:
    plan = f"""id: bigint
~Deduplicate [id#67L]
+- ~Join LeftOuter, (product#68L = product#124L)
   :- ~Join Inner, ((id#67L = id#113L) AND (paid#114-T3600000ms >= at#70))
   :  :- ~SubqueryAlias o
   :  :  +- {relation("orders")}
   :  +- {relation("payments")}
   +- Project [product#124L, concat(p, cast(product#124L as string)) AS name#125]
      +- Range (0, 100, step=1, splits=Some(2))
"""
    assert told(plan) == [
        "    read: orders",
        "    read: payments",
        "  join: inner on id = id and paid >= at *",
        "  read: rows that do not stream (Range)",
        "join: left outer on product = product",
        "drop: duplicates by id *",
    ]


def test_functions_and_others() -> None:
    plan = f"""id: bigint
~Repartition 3, true
+- ~Union false, false
   :- ~MapInPandas f(key#0, id#67L)#129, [id#130L], false
   :  +- ~GlobalLimit 5
   :     +- ~LocalLimit 5
   :        +- ~Generate explode(array(qty#69, qty#69)), false, [q#200]
   :           +- {relation("orders")}
   +- ~FlatMapGroupsInPandasWithState g(key#0, id#67L)#136, [id#67L], [id#137L], [StructField(n)]
      +- ~Sort [id#67L ASC NULLS FIRST], true
         +- ~StreamingRelationV2 org.x.Rate@1, rate, org.x.Table@2, [rowsPerSecond=1], [value#1L]
"""
    assert told(plan) == [
        "  read: orders",
        "  expand: explode(array(qty, qty))",
        "  limit: 5 *",
        "  call: f, gives id",
        "  read: rate",
        "  sort: [id ASC NULLS FIRST], true",
        "  call: g, gives id *",
        "union: both",
        "spread: over 3 partitions",
    ]


def test_parentheses_that_matter_stay() -> None:
    plan = f"""a: bigint
~Filter (((a#1 + 2) * 3) > 4 AND ((b#2 = 1) OR (c#3 = 2)))
+- {relation("orders")}
"""
    assert told(plan)[1] == "filter: ((a + 2) * 3) > 4 and (b = 1 or c = 2)"


def test_a_bracket_in_a_literal_is_no_end() -> None:
    plan = f"""key: binary
~Aggregate [substring_index(value#1, [(, 1)], [substring_index(value#1, [(, 1) AS a#9]
+- {relation("a")}
"""
    assert told(plan) == [
        "read: a",
        "aggregate: [substring_index(value, [(, 1)], [substring_index(value, [(, 1) AS a] *",
    ]


def test_what_is_grouped_by_nothing() -> None:
    plan = f"""n: bigint
~Aggregate [count(1) AS n#9L, max(a#1) AS m#8]
+- {relation("a")}
"""
    assert told(plan) == ["read: a", "group: n = count(1), m = max(a) *"]


def test_no_plan_has_no_steps() -> None:
    assert steps("") == []
