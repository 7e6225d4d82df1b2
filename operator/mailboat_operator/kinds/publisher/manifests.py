"""What a Publisher becomes: configuration, a token, a Service, and one pod with a claim for what it remembers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mailboat.config.document import (
    AgentsConfig,
    Config,
    PublisherAgentConfig,
    PublisherConfig,
    TokenConfig,
)
from mailboat.config.receivers import EventsConfig
from mailboat.config.storage import Secret

from mailboat_operator.kinds.journal.agent_config import agent_config, journal_mounts
from mailboat_operator.kinds.journal.spec import JournalSpec
from mailboat_operator.kinds.publisher.event_settings import Events, Relay, Webhook
from mailboat_operator.kinds.publisher.spec import Publisher, Source, Token
from mailboat_operator.kinds.workload_context import WorkloadContext, secrets_digest
from mailboat_operator.plan.child_manifest import Manifest, Owner
from mailboat_operator.plan.children import workload_of
from mailboat_operator.plan.labels import PUBLISHER, TOKEN_KEY, child_name
from mailboat_operator.workload.agent_manifests import (
    TOKEN_ENDING,
    agent_service,
    config_map,
    network_policies,
    stateful_set,
)
from mailboat_operator.workload.mounts import (
    SecretMount,
    mounted_file,
    mounted_secret,
    secret_folder,
    secret_mount,
    token_mount,
)
from mailboat_operator.workload.pods import AgentPod
from mailboat_operator.workload.volumes import made_volume

_SOURCE: Final = "source"
SOURCE_FOLDER: Final = "/source"
STATE_VOLUME: Final = "state"


def owner_of_publisher(publisher: Publisher) -> Owner:
    """Whose children these are."""
    return Owner("Publisher", PUBLISHER, publisher.metadata)


def token_secret_name(publisher: Publisher) -> str:
    """The Secret with the API's token: the user's own, or the one that the operator makes."""
    reference = publisher.spec.http.token_secret_ref
    return child_name(publisher.metadata.name, TOKEN_ENDING) if reference is None else reference.name


def receiver_mounts(publisher: Publisher) -> Sequence[SecretMount]:
    """The Secrets of event receivers. A change restarts the agent: it reloads the API's own ones only."""
    events = publisher.spec.events
    found = [mount for hook in events.webhooks for mount in (_hook_token(hook), _hook_url(hook))]
    if events.relay is not None:
        found += [_relay_login(events.relay), _relay_ca(events.relay)]
    return [mount for mount in found if mount is not None]


def _hook_token(hook: Webhook) -> SecretMount | None:
    return secret_mount(f"webhook-{hook.name}", hook.token_secret_ref, TOKEN_KEY)


def _hook_url(hook: Webhook) -> SecretMount | None:
    return secret_mount(f"webhookurl-{hook.name}", hook.url_secret_ref, "url")


def _relay_login(relay: Relay) -> SecretMount | None:
    return secret_mount("relay-login", relay.credentials_secret_ref, "username", "password")


def _relay_ca(relay: Relay) -> SecretMount | None:
    return secret_mount("relay-ca", relay.ca_secret_ref, "ca.crt")


def _events_config(events: Events) -> EventsConfig:
    """The events as the agent reads them, with the files that it finds the Secrets in."""
    webhooks = tuple(
        replace(
            hook,
            secret_url=mounted_secret(_hook_url(hook), "url"),
            token=mounted_secret(_hook_token(hook), TOKEN_KEY),
        )
        for hook in events.webhooks
    )
    relay = events.relay
    if relay is not None:
        login = _relay_login(relay)
        relay = replace(
            relay,
            ca_file=mounted_file(_relay_ca(relay), "ca.crt"),
            user_from=mounted_secret(login, "username"),
            password=mounted_secret(login, "password"),
        )
    return replace(events, webhooks=webhooks, relay=relay)


def secret_mounts(publisher: Publisher) -> Sequence[SecretMount]:
    """The Secrets that its agent reads besides those of the journal."""
    callers = [_caller_mount(token) for token in publisher.spec.http.tokens]
    return [token_mount(token_secret_name(publisher)), *callers, *receiver_mounts(publisher)]


def _caller_mount(token: Token) -> SecretMount:
    return SecretMount(secret_folder(f"http-{token.name}"), token.secret_ref.name, (TOKEN_KEY,))


def user_mounts(publisher: Publisher) -> Sequence[SecretMount]:
    """Those of them that the user has to make."""
    is_ours = publisher.spec.http.token_secret_ref is None
    return secret_mounts(publisher)[1:] if is_ours else secret_mounts(publisher)


def publisher_children(publisher: Publisher, journal: JournalSpec, context: WorkloadContext) -> Sequence[Manifest]:
    """All children but the token's Secret, in the order in which they are needed."""
    owner, spec = owner_of_publisher(publisher), publisher.spec
    pod = AgentPod(
        owner=owner,
        spec=spec,
        image=context.image,
        config=context.policy.applied(publisher_config(publisher, journal)),
        secrets=[*secret_mounts(publisher), *journal_mounts(journal)],
        secrets_digest=secrets_digest([*receiver_mounts(publisher), *journal_mounts(journal)], context.secrets),
        volume=STATE_VOLUME,
        volumes=[] if spec.source is None else [source_volume(spec.source)],
        agent_mounts=[] if spec.source is None else [source_mount(spec.source)],
    )
    policies = network_policies(owner, spec.template, context.policy)
    volume = made_volume(workload_of(publisher.metadata, context.children), spec.volume)
    workload = stateful_set(pod, 1, owner.name_of(), volume, when_deleted=str(spec.volume_retention))
    return [config_map(owner, pod.config), agent_service(owner), *policies, workload]


def publisher_config(publisher: Publisher, journal: JournalSpec) -> Config:
    """What the publisher's agent reads."""
    name, spec = publisher.metadata.name, publisher.spec
    agent = PublisherAgentConfig(name, None if spec.source is None else SOURCE_FOLDER)
    base = agent_config(journal, token_mount(token_secret_name(publisher)))
    callers = [
        TokenConfig(token.name, Secret(file=_caller_mount(token).file(TOKEN_KEY)), token.verbs, token.paths)
        for token in spec.http.tokens
    ]
    return replace(
        base,
        http=replace(base.http, tokens=(*base.http.tokens, *callers)),
        publisher=PublisherConfig(
            name=name,
            package_type=spec.package_type,
            filevault_name=spec.filevault_name,
            transfer=spec.transfer,
            throttle=spec.throttle.config,
        ),
        limits=spec.limits,
        events=_events_config(spec.events),
        agents=AgentsConfig(publishers=(agent,)),
    )


def source_volume(source: Source) -> Manifest:
    """The content, as a volume of a pod."""
    return {"name": _SOURCE, "persistentVolumeClaim": {"claimName": source.volume_claim.name, "readOnly": True}}


def source_mount(source: Source, place: str = SOURCE_FOLDER) -> Manifest:
    """The content, in a container."""
    mount: Manifest = {"name": _SOURCE, "mountPath": place, "readOnly": True}
    folder = source.volume_claim.folder
    return mount if folder is None else {**mount, "subPath": folder}
