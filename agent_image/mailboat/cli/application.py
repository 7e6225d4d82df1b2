"""The application without its commands: what holds before a command's name."""

from __future__ import annotations

from typing import Annotated

import typer

from mailboat import __version__
from mailboat.cli.declaring import HomeOption, TokenFileOption, UrlOption, VerboseOption
from mailboat.cli.help_page import PAGE_WIDTH, PagedTyper
from mailboat.cli.session import Defaults, Given


def new_application() -> typer.Typer:
    """An application that knows its own options, and no command yet."""
    app = PagedTyper(
        name="mailboat",
        help="Distributes content from publishers to subscribers over a persisted log, exactly once.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": PAGE_WIDTH},
    )
    app.callback()(before_command)
    return app


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"mailboat {__version__}")
        raise typer.Exit


def before_command(
    context: typer.Context,
    home: HomeOption = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    verbose: VerboseOption = False,
    version: Annotated[  # noqa: ARG001  # its callback does it
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Distributes content from publishers to subscribers over a persisted log, exactly once."""
    defaults = context.ensure_object(Defaults)
    defaults.given = Given(home=home, is_verbose=defaults.is_verbose or verbose, url=url, token_file=token_file)
