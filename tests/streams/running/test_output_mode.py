"""In which mode a plan runs, and what its groups are. Plans as Spark 4.3 prints them.

That Spark sees it the same way, and prints such plans, stands in `test_updates_with_spark`.
"""

import pytest

from headwater.streams.running.output_mode import maybe_group_columns, mode_noted, mode_of

SOURCE = "~StreamingRelation DataSource(org.x.Session@1,text,List()), FileSource[x], [value#0]"
WINDOW = "named_struct(start, precisetimestampconversion(at#3, LongType, TimestampType), end, 1)"


def chain(*nodes: str) -> str:
    """Draw a plan, from the sink down to the source."""
    drawn = ["name: string, n: bigint"]
    for depth, node in enumerate((*nodes, SOURCE)):
        drawn.append(f"{'   ' * (depth - 1)}{'+- ' if depth else ''}{node}")
    return "\n".join(drawn)


COUNT = "~Aggregate [name#5], [name#5, count(1) AS n#20L]"
WINDOWED = (
    "~Aggregate [window#9-T1000ms, name#5], [window#9-T1000ms AS window#8-T1000ms, name#5, "
    "count(1) AS n#20L]"
)
WINDOWS = f"~Project [{WINDOW} AS window#9-T1000ms, name#5]"


@pytest.mark.parametrize(
    "plan, mode",
    [
        (chain(), "append"),
        (chain(COUNT), "update"),
        (chain("~Project [n#20L]", COUNT), "update"),
        (chain("~Aggregate [max(at#7-T0ms) AS n#20]"), "update"),
        (chain(WINDOWED, WINDOWS), "append"),
        (chain("~Aggregate [at#7-T0ms], [at#7-T0ms, count(1) AS n#20L]"), "append"),
        (chain(COUNT, WINDOWED, WINDOWS), "update"),
        (chain(WINDOWED.replace("name#5", "f(name#5, [()"), WINDOWS), "append"),
        (chain("~Deduplicate [name#5]"), "append"),
        (chain("~Join Inner", "Aggregate [id#1], [id#1, count(1) AS n#2L]"), "append"),
        ("", "append"),
    ],
)
def test_append_wherever_rows_can_be_final(plan: str, mode: str) -> None:
    assert mode_of(plan) == mode


@pytest.mark.parametrize(
    "nodes, columns, groups",
    [
        ((COUNT,), "name n", ("name",)),
        (("~Aggregate [count(1) AS n#20L]",), "n", ()),
        (("~Filter (n#20L > cast(1 as bigint))", "~SubqueryAlias c", COUNT), "name n", ("name",)),
        (("~Project [n#20L, name#5 AS who#21]", COUNT), "n who", ("who",)),
        (("~Project [name#5 AS a#1, name#5 AS b#2]", COUNT), "a b", ("a",)),
        (
            ("~Aggregate [upper(a#5), b#6], [upper(a#5) AS upper(a)#7, b#6 AS c#8, 1 AS m#3]",),
            "upper(a) c m",
            ("upper(a)", "c"),
        ),
        ((WINDOWED, WINDOWS), "window name n", ("window", "name")),
        (
            ("~Project [window#8-T1000ms.start AS start#30, name#5, n#20L]", WINDOWED, WINDOWS),
            "start name n",
            ("start", "name"),
        ),
    ],
)
def test_group_columns_are_followed(
    nodes: tuple[str, ...], columns: str, groups: tuple[str, ...]
) -> None:
    assert maybe_group_columns(chain(*nodes), columns.split()) == groups


@pytest.mark.parametrize(
    "nodes, columns",
    [
        ((), "value"),
        (("~Project [n#20L]", COUNT), "n"),
        (("~Project [upper(name#5) AS name#21, n#20L]", COUNT), "name n"),
        (("~Project [(name#5 || x#6) AS name#21, n#20L]", COUNT), "name n"),
        (("~MapInArrow f(name#5, n#20L), [name#7, n#8L]", COUNT), "name n"),
        (("~Aggregate [name#5], [name#5, ... 30 more fields]",), "name n m"),
        (("~Project [span#8.start AS start#30]", "~Aggregate [span#8], [span#8]"), "start"),
        (("~Project [name#5]", WINDOWED, WINDOWS), "name"),
        (("Aggregate [name#5], [name#5, count(1) AS n#20L]",), "name n"),
    ],
)
def test_what_is_not_plain_is_not_guessed(nodes: tuple[str, ...], columns: str) -> None:
    assert maybe_group_columns(chain(*nodes), columns.split()) is None


def test_a_checkpoint_remembers_update_mode_alone() -> None:
    """So that those of pipelines that append stay what they were."""
    assert mode_noted("append") == []
    assert [each.name for each in mode_noted("update")] == ["update mode"]
