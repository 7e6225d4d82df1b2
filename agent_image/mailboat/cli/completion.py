"""`mailboat completion`: the script that teaches a shell to complete commands, options and names."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from mailboat.agent.settings import current_settings
from mailboat.errors import MailboatError


class Shell(enum.StrEnum):
    """The shells that can be taught."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("completion")(completion)


def completion(shell: Annotated[Shell, typer.Argument(help="Which shell.")]) -> None:
    """Print a shell's completion script: `source <(mailboat completion bash)`."""
    from typer import completion as scripts

    script: str = vars(scripts)["get_completion_script"](
        prog_name="mailboat", complete_var="_MAILBOAT_COMPLETE", shell=shell.value
    )
    typer.echo(script)


def subscriber_names(context: typer.Context, incomplete: str) -> list[str]:
    """The subscribers that the home knows, for completion: quietly nothing where there is no home."""
    from mailboat.agent.home import Home

    outer = context.find_root().params.get("home")
    try:
        home = Home(context.params.get("home") or outer or current_settings().home)
        return [one.name for one in home.known_subscribers() if one.name.startswith(incomplete)]
    except MailboatError:
        return []
