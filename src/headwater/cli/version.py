"""`headwater version`.

This file alone decides what is told of the program itself.
"""

import platform

import click

from headwater import __version__
from headwater.cli import output
from headwater.cli.options import examples, json_option


@click.command(epilog=examples("headwater version", "headwater version --json"))
@json_option
def version(*, as_json: bool) -> None:
    """Show the version of Headwater and of Python."""
    if as_json:
        output.document({"headwater": __version__, "python": platform.python_version()})
    else:
        output.say(f"headwater {__version__} (Python {platform.python_version()})")
