"""Encryption, logins and rights on a real broker: who may come in, who may not, and what they are told.

The users of the roles get the rights of the table in `docs/kafka.md`, so that the page is proven as well.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from mailboat.agent.process import AgentProcess
from mailboat.clock import SystemClock
from mailboat.composition.home import Home
from mailboat.composition.workspace import prepare
from mailboat.config.decoder import decode_config
from mailboat.config.storage import KafkaConfig, KafkaSaslConfig, KafkaTlsConfig, SaslMechanism
from mailboat.errors import (
    JournalAccessDeniedError,
    JournalUnavailableError,
    MailboatError,
    TopicMissingError,
)
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_appender import KafkaAppender
from mailboat.journal.kafka_client_log import ClientLog
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.port import Edge, NewRecord, ReadLimits
from mailboat.model.identifiers import TopicName
from mailboat.model.requests import parse_request
from mailboat.testing.journal_harness import FOREVER, new_topic_name, read_to_end, some_records, values_of
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.certificates import Authority, Identity
from support.kafka_broker import BrokerSettings, KafkaBroker, Listener, with_section
from support.token_server import AUDIENCE, TokenServer

USERS = {name: f"{name}-secret" for name in ("publisher", "subscriber", "observer", "operator", "nobody")}
ROLES = ("package", "status", "discovery", "command", "event")
TABLE = Path(__file__).parents[2] / "docs" / "kafka.md"


@dataclass(frozen=True)
class Secured:
    """A broker with a listener for each way in, and what clients need for them."""

    broker: KafkaBroker
    authority: Authority
    stranger: Authority
    client: Identity
    old_client: Identity
    tokens: TokenServer

    @property
    def tls(self) -> KafkaTlsConfig:
        return KafkaTlsConfig(str(self.authority.file))

    def settings(
        self, listener: str, tls: KafkaTlsConfig | None = None, sasl: KafkaSaslConfig | None = None, password: str = ""
    ) -> KafkaSettings:
        return KafkaSettings(KafkaConfig((self.broker.servers(listener),), tls=tls, sasl=sasl), password)

    def with_password(self, user: str, password: str | None = None, listener: str = "SCRAM") -> KafkaSettings:
        mechanism = SaslMechanism.PLAIN if listener == "PLAIN" else SaslMechanism.SCRAM_SHA_512
        secret = USERS[user] if password is None else password
        return self.settings(listener, self.tls, KafkaSaslConfig(mechanism, user), secret)

    def with_certificate(self, client: Identity | None) -> KafkaSettings:
        mine = {} if client is None else {"certificate_file": str(client.certificate), "key_file": str(client.key)}
        return self.settings("MTLS", replace(self.tls, **mine))

    def with_token(self, secret: str = "agent-secret", url: str | None = None) -> KafkaSettings:
        sasl = KafkaSaslConfig(SaslMechanism.OAUTHBEARER, "agent", token_url=url or self.tokens.url)
        return self.settings("TOKENS", sasl=sasl, password=secret)


def pem(identity: Identity) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(identity.both)}


def listeners(broker: Identity, old: Identity, authority: Authority, jwks: str) -> tuple[Listener, ...]:
    package = "org.apache.kafka.common.security"
    known = "".join(f' user_{name}="{password}"' for name, password in USERS.items())
    oauth = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "oauthbearer.sasl.jaas.config": f"{package}.oauthbearer.OAuthBearerLoginModule required;",
        "oauthbearer.sasl.server.callback.handler.class": f"{package}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": jwks,
        "oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    scram = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "scram-sha-512.sasl.jaas.config": f"{package}.scram.ScramLoginModule required;",
    }
    plain = {
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f"{package}.plain.PlainLoginModule required{known};",
    }
    trust = {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
    }
    return (
        Listener("SCRAM", "SASL_SSL", {**pem(broker), **scram}),
        Listener("PLAIN", "SASL_SSL", {**pem(broker), **plain}),
        Listener("MTLS", "SSL", {**pem(broker), **trust}),
        Listener("EXPIRED", "SSL", pem(old)),
        Listener("TOKENS", "SASL_PLAINTEXT", oauth),
    )


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, clock = tmp_path_factory.mktemp("secured"), SystemClock()
    authority = Authority(folder, clock)
    with TokenServer(folder, {"agent": "agent-secret"}, clock) as tokens:
        jwks = f"file://{tokens.jwks_file}"
        settings = BrokerSettings(
            folder / "broker",
            listeners=listeners(authority.issue("broker"), authority.issue("old", days=-1), authority, jwks),
            scram_users=USERS,
            jvm=(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks}",),
            properties={
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",  # who comes over the listener without a login: these tests
                "allow.everyone.if.no.acl.found": "false",
            },
        )
        with KafkaBroker(settings, clock) as broker:
            client, old_client = authority.issue("client"), authority.issue("old-client", days=-1)
            yield Secured(broker, authority, Authority(folder, clock, "stranger"), client, old_client, tokens)


@pytest.fixture(scope="session")
def admin(secured: Secured) -> AdminClient:
    return AdminClient({"bootstrap.servers": secured.broker.bootstrap_servers, "log_level": 0})


def allow(admin: AdminClient, user: str, name: str, rights: str, pattern: ResourcePatternType) -> None:
    kind, permission = ResourceType.TOPIC, AclPermissionType.ALLOW
    for right in rights.split(", "):
        operation = AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", right).upper()]
        binding = AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)
        admin.create_acls([binding])[binding].result(PATIENCE_SECONDS)
        wanted = AclBindingFilter(kind, name, pattern, f"User:{user}", "*", operation, permission)
        wait_until(
            lambda wanted=wanted: bool(admin.describe_acls(wanted).result(PATIENCE_SECONDS)), "the right is known"
        )


@pytest.fixture
def topic(secured: Secured) -> TopicName:
    name = new_topic_name()
    with KafkaJournal(KafkaSettings(KafkaConfig((secured.broker.bootstrap_servers,))), SystemClock()) as journal:
        journal.ensure_topic(name, FOREVER)
    return name


def append_and_read(settings: KafkaSettings, topic: TopicName) -> list[bytes]:
    with KafkaJournal(settings, SystemClock()) as journal:
        journal.append(topic, some_records(3))
        return values_of(read_to_end(journal.reader(topic, Edge.EARLIEST)))


def refused(settings: KafkaSettings, kind: type[MailboatError]) -> MailboatError:
    """What the brokers' refusal is called: a refusal ends the waiting at once, anything else is waited out."""
    seconds = PATIENCE_SECONDS if kind is JournalAccessDeniedError else 1.0
    impatient = with_section(settings, request_seconds=seconds)
    with KafkaJournal(impatient, SystemClock()) as journal, pytest.raises(kind) as raised:
        journal.topics()
    assert raised.value.next_step is not None
    assert "secret" not in f"{raised.value} {raised.value.next_step}"
    return raised.value


# ------------------------------------------------------------------------------------------------------- ways in


@pytest.mark.parametrize("listener", ["SCRAM", "PLAIN"])
def test_a_password_over_tls_lets_in(secured: Secured, admin: AdminClient, topic: TopicName, listener: str) -> None:
    allow(admin, "publisher", topic, "Read, Write", ResourcePatternType.LITERAL)
    assert len(append_and_read(secured.with_password("publisher", listener=listener), topic)) == 3


def test_mtls_client_certificate_authenticates(secured: Secured, admin: AdminClient, topic: TopicName) -> None:
    allow(admin, "CN=client", topic, "Read, Write", ResourcePatternType.LITERAL)
    assert len(append_and_read(secured.with_certificate(secured.client), topic)) == 3


def test_a_token_lets_in(secured: Secured, admin: AdminClient, topic: TopicName) -> None:
    allow(admin, "agent", topic, "Read, Write", ResourcePatternType.LITERAL)
    assert len(append_and_read(secured.with_token(), topic)) == 3


# ------------------------------------------------------------------------------------------------- who is refused


@pytest.mark.parametrize("listener", ["SCRAM", "PLAIN"])
def test_a_wrong_password_is_access_denied(secured: Secured, listener: str) -> None:
    error = refused(secured.with_password("publisher", "guess", listener), JournalAccessDeniedError)
    assert "sasl" in str(error.next_step)
    assert "guess" not in f"{error}"


def test_a_brokers_certificate_that_expired_is_named_as_such(secured: Secured) -> None:
    error = refused(secured.settings("EXPIRED", secured.tls), JournalAccessDeniedError)
    assert "certificate has expired" in error.message
    assert secured.broker.servers("EXPIRED") in error.message


def test_a_broker_of_a_stranger_is_not_trusted(secured: Secured) -> None:
    stranger = KafkaTlsConfig(str(secured.stranger.file))
    error = refused(secured.settings("EXPIRED", stranger), JournalAccessDeniedError)
    assert "not trusted" in error.message
    assert "ca_file" in str(error.next_step)


@pytest.mark.parametrize("who", ["nobody", "expired", "stranger"])
def test_a_client_whose_certificate_is_refused_is_told_which_setting_to_look_at(secured: Secured, who: str) -> None:
    clients = {"nobody": None, "expired": secured.old_client, "stranger": secured.stranger.issue("guest")}
    error = refused(secured.with_certificate(clients[who]), JournalAccessDeniedError)
    assert "certificate_file" in str(error.next_step)


def test_a_client_whose_secret_the_token_server_refuses_is_access_denied(secured: Secured) -> None:
    error = refused(secured.with_token("guess"), JournalAccessDeniedError)
    assert "token_url" in str(error.next_step)


def test_a_token_server_that_does_not_answer_is_worth_another_try(secured: Secured) -> None:
    def is_told() -> bool:  # where the client got to ask for a token in the time that it has
        error = refused(secured.with_token(url="http://127.0.0.1:1/token"), JournalUnavailableError)
        return "token server" in str(error.next_step)

    wait_until(is_told, "the token server to be named")


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_the_wrong_protocol_for_a_listener_is_hinted_at(secured: Secured, is_encrypted: bool) -> None:
    settings = secured.settings("CLIENT", secured.tls) if is_encrypted else secured.settings("SCRAM")
    # the client may not have met the refusal in the time that it has
    wait_until(lambda: "journal.kafka.tls" in str(refused(settings, JournalUnavailableError).next_step))


# --------------------------------------------------------------------------------------------------------- rights


def test_a_topic_that_may_not_be_described_looks_missing(secured: Secured, topic: TopicName) -> None:
    with KafkaJournal(secured.with_password("nobody"), SystemClock()) as journal:
        assert topic not in journal.topics()
        for call in (lambda: journal.append(topic, some_records(1)), lambda: journal.reader(topic, Edge.NEXT)):
            with pytest.raises((TopicMissingError, JournalAccessDeniedError), match=topic):
                call()


def test_a_right_that_is_missing_is_access_denied_and_nothing_is_sent(
    secured: Secured, admin: AdminClient, topic: TopicName
) -> None:
    allow(admin, "nobody", topic, "Read", ResourcePatternType.LITERAL)
    with KafkaJournal(secured.with_password("nobody"), SystemClock()) as journal:
        reader = journal.reader(topic, Edge.EARLIEST)
        assert reader.read(ReadLimits(), 0.0).is_at_end
        for call in (
            lambda: journal.append(topic, [NewRecord(b"no")]),
            lambda: journal.upkeep.delete_topic(topic),
            lambda: journal.ensure_topic(topic, FOREVER),
        ):
            with pytest.raises(JournalAccessDeniedError, match=topic) as denied:
                call()
            assert "docs/kafka.md" in str(denied.value.next_step)
        assert journal.bounds(topic).count == 0


def test_a_right_that_is_found_missing_before_the_first_record_is_access_denied_too(
    secured: Secured, admin: AdminClient, topic: TopicName
) -> None:
    """The producer asks for its id as soon as it is connected, and takes no record once that is refused."""
    allow(admin, "nobody", topic, "Read", ResourcePatternType.LITERAL)
    clock = SystemClock()
    appender = KafkaAppender(secured.with_password("nobody"), clock, ClientLog(clock))
    with closing(appender):
        client = appender._current()
        client.meet_brokers(topic)
        wait_until(lambda: refuses_all(client.producer, topic), "the producer to be beyond recovery")
        for _ in range(2):  # the second has a producer of its own
            with pytest.raises(JournalAccessDeniedError, match=topic):
                appender.append(topic, [NewRecord(b"no")])


def refuses_all(producer: Producer, topic: TopicName) -> bool:
    try:
        producer.produce(topic, b"no")
    except KafkaException as raised:
        return raised.args[0].code() == KafkaError._FATAL
    return False


def rights_of_the_page() -> Mapping[str, Mapping[str, str]]:
    """Role → topic → rights, as the documentation's table has them."""
    text = TABLE.read_text().split("## Rights of a user, by role")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    found = {}
    for role, first, *others in rows[2:]:
        found[role] = dict(zip(ROLES, [first, *(first if other == "same" else other for other in others)], strict=True))
    return found


@pytest.fixture
def prefix(admin: AdminClient) -> str:
    """A prefix of topics on which each role has its rights."""
    prefix = f"roles-{uuid.uuid4().hex[:8]}-"
    for role, rights in rights_of_the_page().items():
        for topic, granted in rights.items():
            if granted != "-" and role != "operator":
                allow(admin, role, f"{prefix}{topic}", granted, ResourcePatternType.LITERAL)
    allow(admin, "operator", prefix, rights_of_the_page()["operator"]["package"], ResourcePatternType.PREFIXED)
    return prefix


@pytest.fixture
def configured(secured: Secured, prefix: str, tmp_path: Path) -> Any:
    """Configurations whose user has one role, as documents."""

    def make(role: str) -> dict[str, Any]:
        password = tmp_path / f"{role}.password"
        password.write_text(f"{USERS[role]}\n")
        kafka = {
            "bootstrap_servers": [secured.broker.servers("SCRAM")],
            "tls": {"ca_file": str(secured.authority.file)},
            "sasl": {"mechanism": "SCRAM-SHA-512", "user": role, "password": {"file": str(password)}},
        }
        return {"journal": {"topic_prefix": prefix, "kafka": kafka}}

    return make


@pytest.fixture
def home_of(configured: Any, tmp_path: Path, command_line: Any) -> Any:
    """Command lines of a home whose user has one role."""

    def make(role: str) -> Any:
        boat = command_line(tmp_path / role)
        boat.home.mkdir()
        (boat.home / "mailboat.yaml").write_text(json.dumps(configured(role)))
        (boat.home / "instance").write_text(f"{uuid.uuid4()}\n")
        for name in ("publishers", "subscribers"):
            (boat.home / name).mkdir()
        return boat

    return make


def test_each_role_can_do_its_work_with_the_rights_of_the_page_and_no_more(home_of: Any, tmp_path: Path) -> None:
    site, target = tmp_path / "site", tmp_path / "web"
    site.mkdir()
    (site / "a.html").write_text("a")
    operator, publisher, subscriber, observer = map(home_of, ("operator", "publisher", "subscriber", "observer"))
    assert operator.json("journal", "ensure")["ok"]
    operator.do("journal", "bench", "--rounds", "10", "--seconds", "0.05")
    publisher.do("publish", site, "/", "--request-id", "r-1")
    assert publisher.json("publish", site, "/", "--request-id", "r-1")["packages"][0]["repeated"]
    subscriber.do("subscribe", "web", "--into", f"files:{target}", "--until", "caught-up")
    assert (target / "a.html").read_text() == "a"
    assert observer.json("journal", "verify")["problems"] == []
    assert [item["offset"] for item in observer.json("journal", "show")] == [0]
    for boat, words in (
        (subscriber, ("publish", site, "/a.html")),
        (observer, ("publish", site, "/a.html")),
        (publisher, ("journal", "truncate", "--before", "1", "--yes")),
        (subscriber, ("journal", "ensure")),
    ):
        ran = boat.run(*words)
        assert ran.code == 77, ran.err
        assert "docs/kafka.md" in ran.err
    operator.do("journal", "truncate", "--before", "1", "--yes")


def test_agents_in_new_homes_can_do_their_work_with_the_rights_of_the_page_and_no_more(
    secured: Secured, prefix: str, home_of: Any, configured: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site, target = tmp_path / "site", tmp_path / "web"
    site.mkdir()
    (site / "a.html").write_text("a")
    home_of("operator").do("journal", "ensure")

    def agents(role: str, **named: Any) -> Home:
        document = {**configured(role), "agents": named, "subscriber": {"announce_seconds": 0.2}}
        home = Home(tmp_path / f"new-{role}", decode_config(document))
        prepare(home)
        return home

    edge = {"name": "edge", "target": f"files:{target}", "editable": True}
    edge["hooks"] = {"before": ["sh", "-c", "! grep -q DELETE"]}
    with (
        AgentProcess(agents("publisher", publishers=[{"name": "author", "source": str(site)}])) as publisher,
        AgentProcess(agents("subscriber", subscribers=[edge])) as subscriber,
    ):
        publisher.start()
        subscriber.start()
        control = publisher.control
        assert control is not None
        wait_until(lambda: bool(control.queues("author")), "the subscriber is known")
        sent = control.distribute("author", parse_request("ADD", ("/a.html",)))
        assert control.distribution("author", sent.package_id, PATIENCE_SECONDS).imported == ("edge",)
        wrong = control.distribute("author", parse_request("DELETE", ("/a.html",)))
        assert control.clear("author", "edge", wait_seconds=PATIENCE_SECONDS).state == "done"
        assert control.distribution("author", wrong.package_id, PATIENCE_SECONDS).removed == ("edge",)
        wait_until(lambda: subscriber.readiness().ready, "the subscriber is ready")
        with KafkaJournal(KafkaSettings(KafkaConfig((secured.broker.bootstrap_servers,))), SystemClock()) as journal:
            wait_until(lambda: journal.bounds(TopicName(f"{prefix}event")).count > 0, "the event is raised")
    assert (target / "a.html").read_text() == "a"
    assert (publisher.exit_code, subscriber.exit_code) == (0, 0)
    assert "authorization failed" not in caplog.text


def test_an_agent_needs_no_right_on_topics_that_it_does_not_use_in_a_home_that_is_made(
    home_of: Any, configured: Any, tmp_path: Path
) -> None:
    home_of("operator").do("journal", "ensure")
    named = {"subscribers": [{"name": "edge", "target": f"files:{tmp_path / 'web'}"}]}
    made = home_of("subscriber").home
    with AgentProcess(Home(made, decode_config({**configured("subscriber"), "agents": named}))) as process:
        process.start()
        wait_until(lambda: process.readiness().agents[0].state == "running", "the subscriber runs")


def test_the_status_is_for_observers_too(home_of: Any) -> None:
    home_of("operator").do("journal", "ensure")
    assert "kafka" in home_of("observer").do("status").out
