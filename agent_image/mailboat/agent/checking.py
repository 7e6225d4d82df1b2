"""Whether a configuration can be run: what the decoder can't know, found before anything is started.

Nothing is opened but the files of secrets, and nothing is connected to. Called by `config check`, and by `agent run`
before it starts anything.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mailboat.agent.home import Home
from mailboat.agent.stores import s3_mistakes
from mailboat.config.decoding import ConfigInvalidError, encode_config
from mailboat.config.document import Config, Expose, PackageType
from mailboat.config.storage import Secret
from mailboat.content.locations import GENERATIONS, parse_target
from mailboat.errors import MailboatError
from mailboat.model.identifiers import parse_agent_name

if TYPE_CHECKING:
    from mailboat.config.document import AgentsConfig, SubscriberAgentConfig

LEVELS: Final = ("debug", "info", "warning", "error")
_USER_OF_A_URL: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")


class Problem(NamedTuple):
    """A key of the document, and why its value can't be meant."""

    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.key}: {self.text}"


def check_config(home: Home, where: str, *, needs_agents: bool) -> None:
    """Refuse a configuration that could not run.

    Args:
        home: The home with the configuration.
        where: Names the document in messages: its file.
        needs_agents: It is to run agents, so it must name some.

    Raises: ConfigInvalidError, naming every problem.
    """
    found = list(problems_of(home))
    if needs_agents and not (home.config.agents.publishers or home.config.agents.subscribers):
        found.append(Problem("agents", "names no publisher and no subscriber: there is nothing to run"))
    if len(found) == 1:
        raise ConfigInvalidError(f"{where}: {found[0]}", key=found[0].key)
    if found:
        numbered = {str(number): str(one) for number, one in enumerate(found, 1)}
        raise ConfigInvalidError(f"{where} has {len(found)} problems", **numbered)


def problems_of(home: Home) -> Iterator[Problem]:
    """Everything that is wrong with a configuration, as far as can be told without starting it."""
    config = home.config
    yield from _name_problems(config.agents)
    for number, one in enumerate(config.agents.subscribers):
        yield from _subscriber_problems(f"agents.subscribers[{number}]", one, config.agents, config.subscriber.expose)
    targets = [home.resolve(one.target) for one in config.agents.subscribers]
    yield from (Problem("agents.subscribers", f"{one} is the target of several") for one in _repeated(targets))
    for number, publisher in enumerate(config.agents.publishers):
        if publisher.source is not None:
            yield from _source_problems(f"agents.publishers[{number}].source", home.resolve(publisher.source))
    tokens = _repeated(one.name for one in config.http.tokens)
    yield from (Problem("http.tokens", f"{one} is the name of several") for one in tokens)
    if config.logs.level not in LEVELS:
        yield Problem("logs.level", f"{config.logs.level!r} is not one of {', '.join(LEVELS)}")
    yield from _format_problems("publisher.filevault_name", (config.publisher.filevault_name,))
    yield from _format_problems("subscriber.filevault_names", config.subscriber.filevault_names)
    yield from _bucket_problems(home)
    yield from _secret_problems(home)


def _name_problems(agents: AgentsConfig) -> Iterator[Problem]:
    for section in ("publishers", "subscribers"):
        names = [one.name for one in getattr(agents, section)]
        for number, name in enumerate(names):
            yield from _refusals(f"agents.{section}[{number}].name", lambda name=name: parse_agent_name(name))
        yield from (Problem(f"agents.{section}", f"{one} is the name of several") for one in _repeated(names))


def _subscriber_problems(
    key: str, one: SubscriberAgentConfig, agents: AgentsConfig, default: Expose
) -> Iterator[Problem]:
    yield from _refusals(f"{key}.target", lambda: parse_target(one.target))
    if (one.expose or default) is Expose.BUILD and not one.target.startswith(f"{GENERATIONS}:"):
        yield Problem(f"{key}.expose", f"{Expose.BUILD} takes a target generations:DIR, not {one.target}")
    for number, name in enumerate(one.follow):
        yield from _refusals(f"{key}.follow[{number}]", lambda name=name: parse_agent_name(name))
    if one.staging is None:
        return
    golden = one.staging.golden
    yield from _refusals(f"{key}.staging.golden", lambda: parse_agent_name(golden))
    if golden == one.name:
        yield Problem(f"{key}.staging.golden", f"{golden} can't wait for itself")
    elif any(other.name == golden and not other.is_editable for other in agents.subscribers):
        yield Problem(f"{key}.staging.golden", f"{golden} is not editable, so it confirms nothing to wait for")


def _source_problems(key: str, place: str) -> Iterator[Problem]:
    path = Path(place.partition(":")[2] if place.startswith(("files:", "generations:", "sqlite:")) else place)
    if not path.exists():
        yield Problem(key, f"there is nothing at {path}")


def _format_problems(key: str, names: Iterable[str]) -> Iterator[Problem]:
    for name in names:
        if not name or name == PackageType.TREE:
            yield Problem(key, f"{name!r} can't be a name of the format filevault")


def _bucket_problems(home: Home) -> Iterator[Problem]:
    s3 = home.config.blobs.s3
    for mistake in () if s3 is None else s3_mistakes(s3, home.path):
        key = str(mistake.where["key"])
        yield Problem(key, mistake.message.removeprefix(f"{key} "))


def _secret_problems(home: Home) -> Iterator[Problem]:
    from mailboat.agent.credentials import read_secret

    for key, secret in _secrets_in(home.config, ""):
        try:
            read_secret(secret, key, home.path)
        except ConfigInvalidError as error:
            yield Problem(key, error.message.removeprefix(f"{key} "))


def _secrets_in(value: Any, key: str) -> Iterator[tuple[str, Secret]]:
    """Every secret that a configuration refers to, with its key."""
    if isinstance(value, Secret):
        yield key, value
    elif isinstance(value, tuple):
        for number, one in enumerate(value):
            yield from _secrets_in(one, f"{key}[{number}]")
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _secrets_in(getattr(value, field.name), f"{key}.{field.name}".lstrip("."))


def _refusals(key: str, parse: Any) -> Iterator[Problem]:
    try:
        parse()
    except MailboatError as error:
        yield Problem(key, error.message)


def _repeated(values: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


def shown_document(config: Config) -> dict[str, Any]:
    """The document of a configuration for people: secrets are references anyway, users in URLs are masked."""
    shown: dict[str, Any] = _masked(encode_config(config))
    return shown


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _masked(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_masked(one) for one in value]
    return _USER_OF_A_URL.sub("***", value) if isinstance(value, str) else value
