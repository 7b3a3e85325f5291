"""`headwater config`: the settings a broker would start with.

This file alone decides how settings and their origins are shown. It talks to no broker: what a
running one has is in `headwater topic config` and in any Kafka tool.
"""

import click

from headwater.cli import output
from headwater.cli.options import examples, json_option, parse_pairs
from headwater.cli.settings import CONFIG_HELP, read_settings


@click.group(epilog=examples("headwater config show --origin"))
def config() -> None:
    """Show settings and where they are from."""


@config.command(
    epilog=examples(
        "headwater config show",
        "headwater config show --origin --changed",
        "headwater config show log.retention.ms --origin",
        "headwater config show --config other.toml --set log.retention.ms=3d --json",
    )
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--origin", is_flag=True, help="Where each value comes from.")
@click.option("--changed", is_flag=True, help="Only what is not the default.")
@click.option("--explain", is_flag=True, help="What each setting is for.")
@click.option("--config", "file", metavar="FILE", help=CONFIG_HELP)
@click.option("--set", "pairs", metavar="NAME=VALUE", multiple=True, help="As for headwater up.")
@json_option
def show(
    *,
    names: tuple[str, ...],
    origin: bool,
    changed: bool,
    explain: bool,
    file: str | None,
    pairs: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the settings `headwater up` would use here: file, environment and flags together."""
    loaded = read_settings(parse_pairs(pairs, "--set"), file, as_json=as_json)
    rows = [
        each
        for each in loaded.show()
        if (not names or each.name in names) and (not changed or each.name in loaded.origins)
    ]
    unknown = set(names) - {each.name for each in loaded.show()}
    if unknown:
        raise click.UsageError(f"no setting is called {', '.join(sorted(unknown))}")
    if as_json:
        output.document(
            {
                "settings": [
                    {
                        "name": each.name,
                        "value": each.value,
                        "origin": each.origin,
                        "documentation": each.documentation,
                    }
                    for each in rows
                ]
            }
        )
        return
    heads = ["SETTING", "VALUE", *(["ORIGIN"] if origin else []), *(["MEANING"] if explain else [])]
    output.table(
        heads,
        [
            [
                each.name,
                each.value,
                *([each.origin] if origin else []),
                *([each.documentation] if explain else []),
            ]
            for each in rows
        ],
    )
