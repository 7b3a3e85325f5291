"""Which changes of a plan a checkpoint survives. Plans as Spark 4.3 prints them."""

from headwater.streams.running.plans import (
    Operator,
    difference,
    operators,
    section,
    times_read,
    topics_read,
)

RELATION = (
    "~StreamingRelationV2 org.x.Provider@30801f61, headwater, org.x.Table@2c5d3a60, "
    "[kafka.bootstrap.servers=h:1, subscribe=a,b, startingOffsets=earliest], [key#0, value#1], "
    "name=<Unassigned>"
)
COUNTED = f"""k: bigint, s: bigint
~Aggregate [(value#1L % cast(2 as bigint))], [(value#1L % cast(2 as bigint)) AS k#2L, sum(v#3L)]
+- ~Filter (value#1L > cast(3 as bigint))
   +- ~EventTimeWatermark 3867559f-eb94-4f8f-af9e-15d192b2bbc0, timestamp#0: timestamp, 10 seconds
      +- {RELATION}
"""
AGAIN = (
    COUNTED.replace("#1", "#71")
    .replace("3867559f-eb94-4f8f-af9e-15d192b2bbc0", "aaaaaaaa-eb94-4f8f-af9e-15d192b2bbc0")
    .replace("@30801f61", "@1")
    .replace("+- ~Filter (value#71L > cast(3 as bigint))\n   ", "")
    .replace("startingOffsets=earliest", "startingOffsets=latest")
)
JOINED = f"""a: bigint
~Join Inner, (value#1L = value#18L)
:- {RELATION}
+- ~Project [timestamp#17 AS t2#16, value#18L]
   +- ~Deduplicate [value#18L]
      +- {RELATION.replace("#0", "#17").replace("#1]", "#18]")}
"""
WITH_LETTERS = f"""key: binary, value: binary
~Union false, false
:- ~Project [key#0, value#1]
:  +- {RELATION}
+- ~Project [key#0, value#1]
   +- {RELATION}
"""


def names(text: str) -> list[str]:
    return [each.name for each in operators(text)]


def test_what_keeps_state_and_what_is_read() -> None:
    assert names(COUNTED) == ["Aggregate", "EventTimeWatermark", "source"]
    assert names(JOINED) == ["Join", "source", "Deduplicate", "source"]
    assert operators(COUNTED)[-1] == Operator("source", "headwater")


def test_what_is_read_again_is_no_other_source() -> None:
    assert names(WITH_LETTERS) == ["source"]
    assert times_read(WITH_LETTERS) == [2]
    assert times_read(JOINED) == [1, 1]
    assert times_read(f"~Union false, false\n:- {JOINED}\n+- {COUNTED}") == [2, 1]


def test_what_does_not_stream_keeps_no_state() -> None:
    assert names("a: bigint\nAggregate [a#1], [a#1]\n+- ~Project [a#1]\n") == []


def test_ids_filters_and_options_of_sources_may_change() -> None:
    assert COUNTED != AGAIN
    assert difference(operators(COUNTED), operators(AGAIN), details=True) is None


def test_an_operator_was_added_or_removed() -> None:
    more = operators(f"~Deduplicate [a#1]\n{COUNTED}")
    assert difference(operators(COUNTED), more, details=True) == "Deduplicate was added"
    assert difference(more, operators(COUNTED), details=True) == "Deduplicate was removed"


def test_operators_were_reordered() -> None:
    one = [Operator("Deduplicate", ""), Operator("Aggregate", ""), Operator("source", "")]
    other = [one[1], one[0], one[2]]
    told = difference(one, other, details=False)
    assert told is not None
    assert "reordered" in told


def test_what_an_operator_does_is_compared_only_within_one_spark() -> None:
    changed = operators(COUNTED.replace("sum(", "max("))
    told = difference(operators(COUNTED), changed, details=True)
    assert told is not None
    assert "sum(" in told
    assert "max(" in told
    assert difference(operators(COUNTED), changed, details=False) is None


def test_of_a_long_list_the_end_counts_too() -> None:
    columns = ", ".join(f"column_{number}" for number in range(500))
    long, other = (operators(f"~Aggregate [{columns}, {last}]") for last in ("a", "b"))
    assert len(long[0].detail) < len(columns)
    assert difference(long, other, details=True) is not None
    assert difference(long, list(long), details=True) is None


def test_topics_of_sources() -> None:
    assert topics_read(JOINED) == ["a,b"]
    assert topics_read(RELATION.replace("subscribe=a,b, startingOffsets=earliest", "assign=x")) == [
        "x"
    ]


def test_sections_of_what_spark_prints() -> None:
    text = "== Parsed Logical Plan ==\nx\n\n== Analyzed Logical Plan ==\ny\nz\n\n== Other ==\nw\n"
    assert section(text, "Analyzed Logical Plan") == "y\nz"
    assert section(text, "Other") == "w"
    assert section(text, "None") == ""
