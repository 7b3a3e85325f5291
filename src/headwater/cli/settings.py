"""Where the settings of a broker are looked for.

This file alone decides which sources the command line adds together: ``headwater.toml`` of this
folder or the file that is named, the environment, the flags. What a setting may be is not decided
here.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from headwater.base.errors import HeadwaterError
from headwater.base.settings import Loaded, load_settings
from headwater.cli import output
from headwater.cli.errors import CommandError, Exit
from headwater.cli.options import BOOTSTRAP_VARIABLE

DEFAULT_CONFIG = "headwater.toml"
CONFIG_HELP = f"Settings in TOML.  [default: ./{DEFAULT_CONFIG}, if there is one]"


def config_file(config: str | None) -> str | None:
    """Return the settings file: the one that is named, else the one of this folder, if any."""
    return config or (DEFAULT_CONFIG if Path(DEFAULT_CONFIG).exists() else None)


def read_settings(
    flags: Mapping[str, object], config: str | None, *, as_json: bool = False
) -> Loaded:
    """Gather the settings; warnings go to standard error."""
    found = config_file(config)
    files = [found] if found else []
    environment = {name: text for name, text in os.environ.items() if name != BOOTSTRAP_VARIABLE}
    try:
        loaded = load_settings(flags, environment, files)
    except HeadwaterError as error:
        raise CommandError(Exit.USAGE, "INVALID_SETTING", error.message, hint=error.hint) from error
    for warning in loaded.warnings:
        output.remark("warning", warning, as_json=as_json)
    return loaded
