"""The way of rows through a plan, from the operator or the table that gave them.

This file alone decides how a plan is asked for it: where it begins, which steps it has, and what a
column is made of. What may stand on the way is for others to say. It begins where an operator says
of its rows whether they may be taken back, or a table says what is deleted; who only passes such a
column on, under whatever name, begins nothing. Plans are the JVM's: Spark Connect shows none.

A batch of `foreachBatch`, and rows that were an RDD in between, have a plan that is cut off. Their
columns still say what they are, so their way begins there.
"""

import itertools
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame

from headwater.streams.kernel.operator import VERSION
from headwater.streams.time.clocks import HIDDEN

OP: Final = "op"

IS_TABLE: Final = "headwater.table"
RETRACTS: Final = "headwater.retracts"
"""What metadata says: of `op`, that it is a table's; of the hidden column, of `op` and of `version`
whether rows may be taken back, for as long as they are as the operator gave them."""

_REFERENCE: Final = "CTERelationRef"
"""Where a query of SQL takes the rows of what stands in its WITH, under ids of its own."""

_NOTED: Final = (OP, VERSION, HIDDEN)


class Origin(Enum):
    """What rows are where their way begins: of a table, to be taken back, or final."""

    TABLE = "a table"
    CHANGES = "changes"
    FINAL = "final"


class Made(NamedTuple):
    """What columns are made of.

    Attributes:
        of: Those of `op`, `version` and the hidden column that they are made of, by their names
            where the way begins.
        by: The expressions that they are made by; none if they are passed on as they are.
    """

    of: frozenset[str]
    by: tuple[Any, ...]


class Way(NamedTuple):
    """A way from the rows of a DataFrame back to where they come from.

    Attributes:
        origin: What they are there.
        steps: The nodes of the JVM that say what was done to them since, the last first.
        begin: The node at which it begins.
    """

    origin: Origin
    steps: tuple[Any, ...]
    begin: Any

    def made(self, *columns: Any, above: int = 0) -> Made:  # noqa: ANN401 - objects of the JVM
        """Return what columns are made of that a step is given.

        Args:
            columns: The columns, as the plan has them.
            above: In front of how many of the steps they are there.
        """
        wanted, by = {column.exprId().id() for column in columns}, []
        for step, before in itertools.pairwise((*self.steps[above:], self.begin)):
            name = step.nodeName()
            if name == "Project":
                wanted, more = _made_in(step, wanted)
                by += more
            elif name in {"Union", _REFERENCE}:
                wanted = _by_place(step.output(), before.output(), wanted)
        begun = _named(self.begin, wanted)
        return Made(frozenset(begun), tuple(by))

    def said(self, what: str, above: int = 0) -> dict[int, Any]:
        """Return the metadata that says something of columns where the way begins.

        Spark forgets that of a column that is cast, also to the type that it has.

        Args:
            what: What it says.
            above: In front of how many of the steps columns are asked for.

        Returns:
            The metadata, by the ids that the columns have there, as far as they are passed on.
        """
        begun = listed(self.begin.output())
        found = {_id(each): each.metadata() for each in begun if each.metadata().contains(what)}
        for before, step in itertools.pairwise((self.begin, *reversed(self.steps[above:]))):
            name, pairs = step.nodeName(), []
            if found and name == "Project":
                pairs = [(each, _maybe_passed_on(each)) for each in listed(step.projectList())]
            elif found and name in {"Union", _REFERENCE}:
                pairs = list(zip(listed(step.output()), listed(before.output()), strict=True))
            for given, taken in pairs:
                if taken is not None and _id(taken) in found:
                    found[_id(given)] = found[_id(taken)]
        return found

    def kept(self, name: str, above: int = 0) -> list[str]:
        """Return under which names `op`, `version` or the hidden column is there as it was.

        Args:
            name: What it was called.
            above: In front of how many of the steps that is asked.
        """
        columns = (*self.steps, self.begin)[above].output()
        found = []
        for column in listed(columns):
            if column.name() == name or _is_noted(column):
                of, by = self.made(column, above=above)
                if of == {name} and not by:
                    found.append(column.name())
        return found


def ways(frame: DataFrame) -> list[Way]:
    """Return the ways of rows: of a union, those of all its sides."""
    made: Any = getattr(frame, "_jdf", None)
    waiting: list[tuple[Any, tuple[Any, ...]]] = []
    named: dict[int, Any] = {}
    if made is not None:
        waiting.append((made.queryExecution().analyzed(), ()))
    found = []
    while waiting:
        node, steps = waiting.pop()
        name = node.nodeName()
        if name == "WithCTE":
            named |= {each.id(): each for each in listed(node.cteDefs())}
            waiting.append((node.plan(), steps))
            continue
        if name == _REFERENCE and node.cteId() in named:
            waiting.append((named[node.cteId()], (*steps, node)))
            continue
        origin = _maybe_origin(node)
        if origin is not None:
            found.append(Way(origin, steps, node))
            continue
        waiting += [(child, (*steps, node)) for child in listed(node.children())]
    return found


def is_steady(frame: DataFrame, expression: Any) -> bool:  # noqa: ANN401 - an object of the JVM
    """Return whether an expression says the same of the same row in every batch."""
    jvm: Any = getattr(frame.sparkSession, "_jvm")  # noqa: B009 - Spark's own answer is there
    catalyst = jvm.org.apache.spark.sql.catalyst
    return bool(
        expression.deterministic()
        and not expression.containsPattern(catalyst.trees.TreePattern.CURRENT_LIKE())
        and not catalyst.expressions.SubqueryExpression.hasSubquery(expression)
    )


def references(expression: Any) -> Iterator[Any]:  # noqa: ANN401 - an object of the JVM
    """Return the columns that an expression goes by."""
    return iter(listed(expression.references().toSeq()))


def _maybe_origin(node: Any) -> Origin | None:  # noqa: ANN401 - an object of the JVM
    """Return what a node makes of its rows; None if it makes nothing of them."""
    if not node.children().size():
        return _maybe_said(node)
    if node.nodeName() != "Project":
        return None
    for column in listed(node.projectList()):
        if column.name() not in {OP, HIDDEN} or _class_of(column) != "Alias":
            continue
        made, metadata = column.child(), column.metadata()
        if column.name() == HIDDEN and metadata.contains(RETRACTS):
            # It is the column that the kernel gave, with a note of its own.
            if _class_of(made) == "AttributeReference" and not made.metadata().contains(RETRACTS):
                return Origin.CHANGES if metadata.getBoolean(RETRACTS) else Origin.FINAL
        elif metadata.contains(IS_TABLE) and _class_of(made) == "CaseWhen":
            return Origin.TABLE
    return None


def _maybe_said(leaf: Any) -> Origin | None:  # noqa: ANN401 - an object of the JVM
    """Return what rows are by their columns alone; None if these say nothing."""
    said = [column.metadata() for column in listed(leaf.output())]
    if any(each.contains(IS_TABLE) for each in said):
        return Origin.TABLE
    notes = [each.getBoolean(RETRACTS) for each in said if each.contains(RETRACTS)]
    if not notes:
        return None
    return Origin.CHANGES if any(notes) else Origin.FINAL


def _made_in(node: Any, wanted: set[int]) -> tuple[set[int], list[Any]]:  # noqa: ANN401
    """Return what columns of a projection are made of, and by which expressions."""
    found: set[int] = set()
    by = []
    for column in listed(node.projectList()):
        number = column.exprId().id()
        if number not in wanted:
            continue
        if _class_of(column) != "Alias":
            found.add(number)
            continue
        if _maybe_passed_on(column) is None:
            by.append(column.child())
        found |= {each.exprId().id() for each in references(column)}
    return found, by


def _maybe_passed_on(column: Any) -> Any | None:  # noqa: ANN401 - an object of the JVM
    """Return the column that a column of a projection is, maybe under another name.

    Spark keeps a cast to the type that a column has, until it runs the query.
    """
    while _class_of(column) == "Alias" or _is_cast_to_itself(column):
        column = column.child()
    return column if _class_of(column) == "AttributeReference" else None


def _is_cast_to_itself(expression: Any) -> bool:  # noqa: ANN401 - an object of the JVM
    if _class_of(expression) != "Cast":
        return False
    kind = expression.dataType()
    # Structs carry what their metadata says, which a cast forgets.
    return _class_of(kind) != "StructType" and bool(kind.equals(expression.child().dataType()))


def listed(found: Any) -> list[Any]:  # noqa: ANN401 - a Seq of Scala
    """Return the elements of a sequence of Scala."""
    return [found.apply(number) for number in range(found.size())]


def _id(column: Any) -> int:  # noqa: ANN401 - an object of the JVM
    return int(column.exprId().id())


def _by_place(given: Any, taken: Any, wanted: set[int]) -> set[int]:  # noqa: ANN401
    """Return which columns are taken, where a step gives them under ids of its own, in order.

    A union has those of its first input for all of them.
    """
    pairs = zip(listed(given), listed(taken), strict=True)
    return {_id(before) for each, before in pairs if _id(each) in wanted}


def _named(node: Any, wanted: set[int]) -> set[str]:  # noqa: ANN401 - an object of the JVM
    """Return the names of columns, as far as they say what rows are."""
    named = listed(node.output())
    return {each.name() for each in named if each.name() in _NOTED and each.exprId().id() in wanted}


def _is_noted(column: Any) -> bool:  # noqa: ANN401 - an object of the JVM
    metadata = column.metadata()
    return bool(metadata.contains(IS_TABLE) or metadata.contains(RETRACTS))


def _class_of(thing: Any) -> str:  # noqa: ANN401 - an object of the JVM
    return str(thing.getClass().getSimpleName())
