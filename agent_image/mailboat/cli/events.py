"""`mailboat events`: what changes in a journal and its subscribers, one line an event; of a home or of an agent."""

from __future__ import annotations

import re
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, TextIO

import typer

from mailboat.api.stream_events import EventType, StreamEvent, read_events
from mailboat.cli.help_page import PagedTyper
from mailboat.cli.options import remote_command
from mailboat.cli.output import Output, count_text, show_next, styled_line
from mailboat.cli.session import Session
from mailboat.cli.tables import error_style, state_style
from mailboat.clock import Clock, SystemClock
from mailboat.control.event_feed import EventFeed, EventTopic
from mailboat.errors import RetryableError, UsageError
from mailboat.model.messages import TopicRole
from mailboat.printable import printable

_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
_MAX_FRAMES: Final = 64 * 1024

app = PagedTyper()


@app.command("events")
@remote_command
def events(
    session: Session,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for later events until Ctrl-C.")] = False,
    after: Annotated[
        str | None, typer.Option("--after", metavar="ID", help="Resume after this event of the agent at --url.")
    ] = None,
) -> None:
    """Show the state of the journal and its subscribers, then each change of it.

    With -o json, one JSON document a line: id, type and data, as `GET /api/v1/events` sends them.
    """
    if after is not None and session.url is None:
        raise UsageError("--after names an event of an agent", next_step=f"mailboat --url URL events --after {after}")
    clock = SystemClock()
    found = _of_home(session, clock, follow=follow) if session.url is None else _of_agent(session, clock, after, follow)
    shown = dict[str, str]()
    for event in found:
        if session.output is not Output.TABLE:
            show_next({"id": event.id, "type": event.type, "data": event.data}, [event.id], session.output)
            continue
        stamp = clock.now().astimezone().strftime("%H:%M:%S")
        lines = [coloured_line(f"{stamp}  {printable(line)}", sys.stdout) for line in news_of(event, shown)]
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()


_SUBJECT: Final = re.compile(r"(?:subscriber|publisher) +[^:]+|journal")
"""What a line is about, of which only changes are shown."""

_MAX_SUBJECTS: Final = 10_000


def news_of(event: StreamEvent, shown: dict[str, str]) -> Iterator[str]:
    """The lines that differ from the last about the same subject, without rates and sizes."""
    if len(shown) > _MAX_SUBJECTS or (event.type == EventType.SNAPSHOT and event.data["gap"]):
        shown.clear()
    for line in event_lines(event):
        found = _SUBJECT.match(line)
        if found is None or shown.get(found.group()) != line:
            yield line
        if found is not None:
            shown[found.group()] = line


_STATE: Final = re.compile(r"(\S+  (?:subscriber|publisher) +[^:]+: )([a-z-]+)(?=[,;]|$)(.*?)([A-Z][A-Za-z]+: .*)?")
"""Time and name, the state, the lag, and an error."""


def coloured_line(line: str, stream: TextIO) -> str:
    """The line with the colours that `status` has, where the stream is a terminal."""
    found = _STATE.fullmatch(line) if stream.isatty() else None
    if found is None:
        return line
    before, state, lag, error = found.groups(default="")
    parts = [(before, ""), (state, state_style(state)), (lag, ""), (error, error_style(error))]
    return styled_line(parts, stream).rstrip("\n")


def _of_agent(session: Session, clock: Clock, after: str | None, follow: bool) -> Iterator[StreamEvent]:  # an option
    """The events of an agent, connecting again after a break. Raises: as the first connection."""
    last_id, pause, is_connected = after, _PAUSE_SECONDS, False
    with session.agent(session.url or "") as control:
        while True:
            try:
                for event in control.events(last_id, follow=follow):
                    is_connected, pause = True, _PAUSE_SECONDS
                    if event.type != EventType.END:
                        last_id = event.id or last_id
                        yield event
            except RetryableError as error:
                # A first failure is most likely a wrong URL, which no wait corrects; a later one is a restart.
                if not is_connected:
                    raise
                session.note(f"{error}; connecting again in {pause:g} s")
            if not follow:
                return
            clock.wait(threading.Event(), pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _of_home(session: Session, clock: Clock, *, follow: bool) -> Iterator[StreamEvent]:
    """The events of the home's own journal, looked for twice a second."""
    with session.workspace() as workspace, session.control(workspace) as control:
        topic = EventTopic(workspace.journal, workspace.topic(TopicRole.EVENT))
        feed = EventFeed(control.status, uuid.uuid4().hex[:8], topic)
        feed.poll()
        place, frame = feed.snapshot(is_gap=False)
        yield from _decoded(frame)
        while follow:
            clock.wait(threading.Event(), _PAUSE_SECONDS / 2)
            feed.poll()
            while (found := feed.after_or_gap(place, _MAX_FRAMES))[1]:
                place, frame = found
                yield from _decoded(frame)


def _decoded(frames: bytes) -> Iterator[StreamEvent]:
    return read_events(frames.decode().split("\n"))


def event_lines(event: StreamEvent) -> Iterator[str]:
    """An event for people."""
    describe = _DESCRIBED.get(event.type)
    if event.type == EventType.SNAPSHOT:
        yield from _snapshot_lines(event.data)
    elif event.type == EventType.PROBLEM and event.data is None:
        yield "journal     readable again"
    elif describe is not None:
        yield describe(event.data)


def _snapshot_lines(data: Mapping[str, Any]) -> Iterator[str]:
    if data["gap"]:
        yield "earlier events are no longer kept; the present state follows"
    if data["problem"] is not None:
        yield _problem(data["problem"])
    status = data["status"]
    if status is not None:
        yield _journal(status["journal"])
        yield from map(_publisher, status["publishers"])
        yield from map(_subscriber, status["subscribers"])


def _journal(data: Mapping[str, Any]) -> str:
    return f"journal     oldest {data['earliest_offset']}, next {data['next_offset']}"


def _publisher(data: Mapping[str, Any]) -> str:
    delay = f"; requests are delayed by {data['delay_seconds']:.3g} s" if data["delay_seconds"] else ""
    return f"publisher   {data['name']}: {data['state'] or 'in another process'}{delay}"


def _subscriber(data: Mapping[str, Any]) -> str:
    lag = "no position" if data["lag"] is None else f"lag {data['lag']}"
    given_up = f", {count_text(data['given_up'], 'package')} in the error queue" if data["given_up"] else ""
    error = data["error"]
    cause = "" if error is None else f", {error['code']}: {error['message']}"
    return f"subscriber  {data['name']}: {data['state']}, {lag}{given_up}{cause}"


def _removed(data: Mapping[str, Any]) -> str:
    return f"subscriber  {data['name']}: removed"


def _distributed(data: Mapping[str, Any]) -> str:
    missed = data.get("missed", ())
    lacking = f"; not imported by {', '.join(missing['subscriber'] for missing in missed)}" if missed else ""
    paths = " ".join(data["paths"][:3])
    return f"package     offset {data['offset']} of {data['pubAgentName']} is distributed: {paths}{lacking}"


def _problem(data: Mapping[str, Any]) -> str:
    return f"journal     {data['title']}: {data.get('detail') or ''}"


_DESCRIBED: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    EventType.JOURNAL: _journal,
    EventType.PUBLISHER: _publisher,
    EventType.SUBSCRIBER: _subscriber,
    EventType.SUBSCRIBER_REMOVED: _removed,
    EventType.DISTRIBUTED: _distributed,
    EventType.PROBLEM: _problem,
}
