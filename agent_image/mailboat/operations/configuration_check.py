"""Whether a configuration can be run: what the decoder can't know, found before anything is started.

Nothing is opened but the files of secrets, and nothing is connected to. Called by `config check`, and by `agent run`
before it starts anything.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from mailboat.composition.configured_jobs import checked_rule
from mailboat.composition.credentials import read_secret
from mailboat.composition.environment import pip_command
from mailboat.composition.event_receivers import receiver_mistakes
from mailboat.composition.home import Home, line_of
from mailboat.composition.kafka_login import kafka_settings
from mailboat.composition.stores import s3_mistakes
from mailboat.config.decoder import ConfigInvalidError, Mistake, encode_config, invalid_config, mistakes_of
from mailboat.config.document import (
    AgentsConfig,
    Config,
    Delivery,
    Expose,
    PackageType,
    SubscriberAgentConfig,
    is_head_kept,
)
from mailboat.config.storage import ConsumptionPolicy, Secret
from mailboat.config.topic_settings import topic_retention
from mailboat.content.locations import GENERATIONS, parse_target
from mailboat.errors import MailboatError
from mailboat.model.identifiers import parse_agent_name, parse_topic_name
from mailboat.model.messages import TopicRole
from mailboat.model.paths import parse_path
from mailboat.pools.shared_target import check_shared
from mailboat.retention.task import check_bounds

_KEPT_AS_LONG: Final = (TopicRole.STATUS, TopicRole.COMMAND, TopicRole.EVENT)
LEVELS: Final = ("debug", "info", "warning", "error")
_USER_OF_A_URL: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def check_config(home: Home, where: str, *, needs_agents: bool) -> None:
    """Refuse a configuration that could not run.

    Args:
        home: The home with the configuration.
        where: Names the document in messages: its file.
        needs_agents: It is to run agents, so it must name some.

    Raises: ConfigInvalidError, naming every problem with its line.
    """
    found = list(problems_of(home))
    if needs_agents and not (home.config.agents.publishers or home.config.agents.subscribers):
        step = "name some under agents.publishers or agents.subscribers"
        found.append(Mistake("agents", "names no publisher and no subscriber: there is nothing to run", step))
    if found:
        told = [Mistake(problem.key, f"{problem.key}: {problem.text}", problem.next_step) for problem in found]
        raise invalid_config(where, told, partial(line_of, home.config_file))


def warnings_of(config: Config) -> list[str]:
    """What a configuration can run with, and probably should not, in one sentence each."""
    packages = config.retention.package_seconds
    found = []
    for role in _KEPT_AS_LONG:
        seconds = topic_retention(role, config.retention).seconds
        if seconds is not None and (packages is None or seconds < packages):
            than = "without limit" if packages is None else f"for {packages:,.0f} seconds"
            found.append(
                f"retention: {role} messages are kept for {seconds:,.0f} seconds, packages {than}: an agent that "
                f"starts later cannot read the outcome of the older packages; raise retention.{role}.seconds"
            )
    return found


def problems_of(home: Home) -> Iterator[Mistake]:
    """Everything that is wrong with a configuration, as far as can be found without starting it."""
    config = home.config
    yield from _name_problems(config.agents)
    for number, one in enumerate(config.agents.subscribers):
        yield from _subscriber_problems(f"agents.subscribers[{number}]", one, config.agents, config.subscriber.expose)
    targets = [home.resolve(subscriber.target) for subscriber in config.agents.subscribers]
    yield from (Mistake("agents.subscribers", f"{target} is the target of several") for target in _repeated(targets))
    for number, publisher in enumerate(config.agents.publishers):
        key = f"agents.publishers[{number}].source"
        if publisher.source == "":
            yield Mistake(key, "is empty, which would mean the folder of the configuration")
        elif publisher.source is not None:
            yield from _source_problems(key, home.resolve_source(publisher.source))
    tokens = _repeated(token.name for token in config.http.tokens)
    yield from (Mistake("http.tokens", f"duplicate name {token}") for token in tokens)
    if config.logs.level not in LEVELS:
        yield Mistake("logs.level", f"{config.logs.level!r} is not one of {', '.join(LEVELS)}")
    yield from _format_problems("publisher.filevault_name", (config.publisher.filevault_name,))
    yield from _format_problems("subscriber.filevault_names", config.subscriber.filevault_names)
    yield from mistakes_of("publisher.name", parse_agent_name, config.publisher.name)
    for number, rule in enumerate(config.jobs.on):
        yield from mistakes_of(f"jobs.on[{number}]", checked_rule, rule)
    yield from _topic_problems(config)
    # what no agent asks for contradicts nothing
    if config.retention.consumption.policy is not ConsumptionPolicy.OFF or is_head_kept(config):
        yield from mistakes_of("retention", check_bounds, config.retention)
    yield from _client_problems(config)
    yield from _bucket_problems(home)
    yield from receiver_mistakes(config, home.path)
    secrets = list(_secret_problems(home))
    yield from secrets
    # the settings of the brokers need the secrets, and would report a missing one a second time
    if not secrets:
        yield from _broker_problems(home)


def _name_problems(agents: AgentsConfig) -> Iterator[Mistake]:
    for section in ("publishers", "subscribers"):
        names = [agent.name for agent in getattr(agents, section)]
        for number, name in enumerate(names):
            yield from mistakes_of(f"agents.{section}[{number}].name", parse_agent_name, name)
        yield from (Mistake(f"agents.{section}", f"duplicate name {name}") for name in _repeated(names))


def _subscriber_problems(
    key: str, one: SubscriberAgentConfig, agents: AgentsConfig, default: Expose
) -> Iterator[Mistake]:
    of_target = list(mistakes_of(f"{key}.target", parse_target, one.target))
    yield from of_target
    if one.delivery is Delivery.SHARED and not of_target:
        yield from mistakes_of(key, check_shared, one)
    if (one.expose or default) is Expose.BUILD and not one.target.startswith(f"{GENERATIONS}:"):
        yield Mistake(f"{key}.expose", f"{Expose.BUILD} takes a target generations:DIR, not {one.target}")
    for number, name in enumerate(one.follow):
        yield from mistakes_of(f"{key}.follow[{number}]", parse_agent_name, name)
    for number, root in enumerate(one.roots):
        yield from mistakes_of(f"{key}.roots[{number}]", parse_path, root)
    if one.staging is None:
        return
    golden = one.staging.golden
    yield from mistakes_of(f"{key}.staging.golden", parse_agent_name, golden)
    if golden == one.name:
        yield Mistake(f"{key}.staging.golden", f"{golden} can't wait for itself")
    elif any(other.name == golden and not other.editable for other in agents.subscribers):
        yield Mistake(f"{key}.staging.golden", f"{golden} is not editable, so it confirms nothing to wait for")


def _source_problems(key: str, place: str) -> Iterator[Mistake]:
    path = Path(place.partition(":")[2] if place.startswith(("files:", "generations:", "sqlite:")) else place)
    try:
        is_there = path.exists()
    except OSError as error:  # a name that is too long, or a folder that this user may not search
        yield Mistake(key, f"{path} can't be used: {error.strerror}")
    else:
        if not is_there:
            yield Mistake(key, f"there is nothing at {path}")


def _format_problems(key: str, names: Iterable[str]) -> Iterator[Mistake]:
    for name in names:
        if not name or name == PackageType.TREE:
            yield Mistake(key, f"{name!r} can't be a name of the format filevault")


def _topic_problems(config: Config) -> Iterator[Mistake]:
    names = {role: config.journal.topic_name(role) for role in TopicRole}
    for role, name in names.items():
        key = "journal.topic_prefix" if getattr(config.journal.topics, role) is None else f"journal.topics.{role}"
        problems = list(mistakes_of(key, parse_topic_name, name))
        yield from problems
        # a wrong prefix is one mistake, not one for each topic
        if problems:
            return
    yield from (Mistake("journal.topics", f"duplicate topic name {name}") for name in _repeated(names.values()))


def _client_problems(config: Config) -> Iterator[Mistake]:
    """The client libraries that the configuration needs, and that are not installed."""
    for key, is_needed, module, extra in (
        ("journal.kafka", config.journal.kafka is not None, "confluent_kafka", "kafka"),
        ("blobs.s3", config.blobs.s3 is not None, "boto3", "s3"),
        ("tracing.otlp_endpoint", config.tracing.otlp_endpoint is not None, "opentelemetry.sdk", "tracing"),
    ):
        if is_needed and not _is_installed(module):
            text = f"needs a client library that is not installed: the extra {extra}"
            yield Mistake(key, text, pip_command(f"mailboat[{extra}]"))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


def _broker_problems(home: Home) -> Iterator[Mistake]:
    kafka = home.config.journal.kafka
    if kafka is None:
        return
    try:
        kafka_settings(kafka, home.path)
    except MailboatError as error:
        yield Mistake(str(error.where.get("key", "journal.kafka")), error.message)


def _bucket_problems(home: Home) -> Iterator[Mistake]:
    s3 = home.config.blobs.s3
    for mistake in () if s3 is None else s3_mistakes(s3, home.path):
        key = str(mistake.where["key"])
        yield Mistake(key, mistake.message.removeprefix(f"{key} "))


def _secret_problems(home: Home) -> Iterator[Mistake]:
    for key, secret in _secrets_in(home.config, ""):
        try:
            read_secret(secret, key, home.path)
        except ConfigInvalidError as error:
            yield Mistake(key, error.message.removeprefix(f"{key} "))


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
        return [_masked(item) for item in value]
    return _USER_OF_A_URL.sub("***", value) if isinstance(value, str) else value
