"""Kafka's own command-line tools, by the end of their class names.

This file alone decides how a tool is run against a broker and what counts as its output. The
fixture `run` gives it to tests, for each broker in turn.
"""

from typing import Protocol

from tests.interop.clients import Clients, eventually

TOOLS = "org.apache.kafka.tools"
# These want the address before the word that says what to do.
_ADDRESS_FIRST = {"FeatureCommand", "MetadataQuorumCommand", "TransactionsCommand"}
# Apache Kafka tells of a change a moment after it has answered.
_SETTLED_WITHIN_S = 30.0


class Run(Protocol):
    """A tool by the end of its name, with its arguments; gives what it printed."""

    def __call__(self, tool: str, *arguments: str, stdin: str = "", status: int = 0) -> str:
        """Run it; another status than the one expected fails the test."""


def runner(clients: Clients, address: str) -> Run:
    """Make what runs tools against one broker."""

    def run(tool: str, *arguments: str, stdin: str = "", status: int = 0) -> str:
        name = tool if tool.startswith("kafka.") else f"{TOOLS}.{tool}"
        word = 0 if tool in _ADDRESS_FIRST or "".join(arguments[:1]).startswith("--") else 1
        arguments = (*arguments[:word], "--bootstrap-server", address, *arguments[word:])
        done = clients["java-4.3"].call("tool", args=arguments, stdin=stdin, **{"class": name})
        assert done["status"] == status, done
        # The first logger in a process tells where it logs to.
        errors = [line for line in done["err"].splitlines() if not line.startswith("SLF4J")]
        return "\n".join([done["out"], *errors])

    return run


def prints(run: Run, wanted: str, tool: str, *arguments: str) -> str:
    """Run a tool until it prints the text; gives all that it printed then."""
    printed = ""
    for _ in eventually(_SETTLED_WITHIN_S):
        printed = run(tool, *arguments)
        if wanted in printed:
            return printed
    raise AssertionError(f"{wanted!r} is not in:\n{printed}")


def prints_no_more(run: Run, unwanted: str, tool: str, *arguments: str) -> None:
    """Run a tool until it does not print the text any more."""
    for _ in eventually(_SETTLED_WITHIN_S):
        if unwanted not in run(tool, *arguments):
            return
    raise AssertionError(f"{unwanted!r} is still printed")
