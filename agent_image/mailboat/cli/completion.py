"""`mailboat completion`: the script that teaches a shell to complete commands, options and names."""

from __future__ import annotations

import enum
from typing import Annotated, Final

import typer
from typer import completion as scripts

from mailboat.cli.help_page import PagedTyper
from mailboat.cli.session import Defaults, Session, SharedOptions, session_from
from mailboat.composition.environment import current_settings
from mailboat.errors import MailboatError

_NOTHING_TO_OFFER: Final = (MailboatError, OSError)
"""No home, no rights to it, no agent: an error would stand in the middle of the line that is typed."""


class Shell(enum.StrEnum):
    """The shells that can be taught."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


app = PagedTyper()


@app.command("completion")
def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print a shell's completion script: `source <(mailboat completion bash)`."""
    script: str = vars(scripts)["get_completion_script"](
        prog_name="mailboat", complete_var="_MAILBOAT_COMPLETE", shell=shell.value
    )
    typer.echo(script)


def subscriber_names(context: typer.Context, incomplete: str) -> list[str]:
    """Subscriber names of the home or the agent, for completion; empty where there is neither."""
    try:
        session = _session(context)
        if session.url is None:
            return [
                subscriber.name
                for subscriber in session.home().known_subscribers()
                if subscriber.name.startswith(incomplete)
            ]
        with session.control() as control:
            return [
                subscriber.name for subscriber in control.status().subscribers if subscriber.name.startswith(incomplete)
            ]
    except _NOTHING_TO_OFFER:
        return []


SubscriberArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the subscriber.", autocompletion=subscriber_names)
]


def publisher_names(context: typer.Context, incomplete: str) -> list[str]:
    """The publishers, for completion."""
    try:
        with _session(context).control() as control:
            return [
                publisher.name for publisher in control.status().publishers if publisher.name.startswith(incomplete)
            ]
    except _NOTHING_TO_OFFER:
        return []


def queue_names(context: typer.Context, incomplete: str) -> list[str]:
    """The subscribers that have a queue, for completion."""
    try:
        session = _session(context)
        publisher = session.shown_publisher(context.params.get("publisher"))
        with session.control() as control:
            names = dict.fromkeys(queue.subscriber for queue in control.queues(publisher))
        return [name for name in names if name.startswith(incomplete)]
    except _NOTHING_TO_OFFER:
        return []


def _session(context: typer.Context) -> Session:
    """What the words so far say, on both sides of the command's name."""
    outer, inner = context.find_root().params, context.params
    defaults = Defaults()
    defaults.take(SharedOptions(home=outer.get("home"), url=outer.get("url"), token_file=outer.get("token_file")))
    given = SharedOptions(home=inner.get("home"), url=inner.get("url"), token_file=inner.get("token_file"))
    return session_from(current_settings(), defaults, given)
