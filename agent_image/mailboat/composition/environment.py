"""Settings from the environment. The only module that reads it; all other code gets the record.

Options of the command line win over the environment, the environment wins over what stands here.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from mailboat.errors import UsageError
from mailboat.frozen import Frozen

HOME_VARIABLE: Final = "MAILBOAT_HOME"
VERBOSE_VARIABLE: Final = "MAILBOAT_VERBOSE"
URL_VARIABLE: Final = "MAILBOAT_URL"
TOKEN_VARIABLE: Final = "MAILBOAT_TOKEN"  # noqa: S105  # the name of a variable
DEFAULT_HOME: Final = Path(".mailboat")


class Settings(Frozen):
    """The environment's part of the configuration.

    Attributes:
        home: Where the embedded home is.
        is_verbose: Whether errors come with their traces.
        is_colour_wanted: Whether a terminal may be coloured (https://no-color.org).
        url: The agent that commands talk to; None works on the home.
        token: The bearer token for it.
    """

    home: Path = DEFAULT_HOME
    is_verbose: bool = False
    is_colour_wanted: bool = True
    url: str | None = None
    token: str | None = field(default=None, repr=False)


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Read `MAILBOAT_HOME`, `MAILBOAT_VERBOSE`, `MAILBOAT_URL`, `MAILBOAT_TOKEN` and `NO_COLOR`; empty means absent."""
    home = environment.get(HOME_VARIABLE) or None
    return Settings(
        home=DEFAULT_HOME if home is None else _expanded(home) or Path(home),
        is_verbose=bool(environment.get(VERBOSE_VARIABLE)),
        is_colour_wanted=not environment.get("NO_COLOR"),
        url=environment.get(URL_VARIABLE) or None,
        token=environment.get(TOKEN_VARIABLE) or None,
    )


def expanded_path(text: str) -> Path:
    """A path with its `~` expanded. Raises: UsageError where no such user is known."""
    found = _expanded(text)
    if found is None:
        raise UsageError(f"the home folder of {text.partition('/')[0]!r} is not known", path=text)
    return found


def _expanded(text: str) -> Path | None:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return None


def current_settings() -> Settings:
    """The settings of this process."""
    return settings_from(os.environ)


def check_encoding(encoding: str) -> None:
    """Refuse a locale that reads names of files as other than UTF-8: `ä` would be published as `Ã¤`.

    Raises: UsageError.
    """
    if encoding != "utf-8":
        raise UsageError(
            f"the locale has names of files in {encoding}, and content has them in UTF-8",
            next_step="set LC_ALL=C.UTF-8 or PYTHONUTF8=1",
        )


def pip_command(requirement: str) -> str:
    """The command that installs something for this Python, whichever `pip` the shell would find."""
    return f"{shlex.quote(sys.executable)} -m pip install {shlex.quote(requirement)}"


def variable(name: str) -> str | None:
    """A variable that a secret of the configuration refers to."""
    return os.environ.get(name)


def child_environment(home: Path) -> dict[str, str]:
    """The environment for a child process that works on `home`, and on nothing else."""
    kept = {name: value for name, value in os.environ.items() if name not in {URL_VARIABLE, TOKEN_VARIABLE}}
    return {**kept, HOME_VARIABLE: str(home)}
