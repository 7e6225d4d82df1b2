"""Credentials from Secrets, on a real broker and a real S3 server: missing, malformed, refused, and rotated."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from lightkube.config.kubeconfig import KubeConfig
from mailboat.testing.wait import PATIENCE_SECONDS
from mailboat_operator.agent_client import Agents
from mailboat_operator.broker_connections import Connections
from mailboat_operator.cluster import Cluster
from mailboat_operator.reconciliation import ObjectKey, Reconciler
from mailboat_operator.systems import Systems
from mailboat_operator.workload.pods import AgentImage
from support.s3_server import ADMIN

CANARY = "canary-1c55e0"
REFUSED_SECONDS = 10.0
"""A login that is refused is found out at the end of the time limit of a request, which is short for that look only."""
SPOILT_SECONDS = 1.0
"""The same where any failure will do, also that of a broker that had too little time: nine logins wait for it."""
TOPICS_TO_COME = ("TopicsNotReady", "False")


class Harbour:
    """A Journal, and one operator that keeps its connections from look to look."""

    def __init__(self, api_server: Any, namespace: str, answer_seconds: float = PATIENCE_SECONDS) -> None:
        self.server, self.namespace, self.events = api_server, namespace, list[str]()
        self._runner = asyncio.Runner()
        self._cluster = Cluster(lambda *_: None, KubeConfig.from_file(api_server.kubeconfig))
        agents, image = Agents(), AgentImage("mailboat:test")
        self._connections = Connections(answer_seconds=answer_seconds)
        self._reconciler = Reconciler(self._cluster, agents, image, self.events.append, Systems(self._connections))

    def journal(self, **spec: Any) -> None:
        manifest = {"apiVersion": "mailboat.dev/v1alpha1", "kind": "Journal", "metadata": {"name": "main"}}
        answer = self.server.create(self.namespace, {**manifest, "spec": spec})
        assert answer.status_code == 201, answer.text

    def secret(self, name: str, **values: str | bytes) -> None:
        """Make it, or replace what it holds."""
        texts = {key: value.encode() if isinstance(value, str) else value for key, value in values.items()}
        data = {key: base64.b64encode(value).decode() for key, value in texts.items()}
        url = f"/api/v1/namespaces/{self.namespace}/secrets"
        self.server.http.delete(f"{url}/{name}")
        self.server.http.post(url, json={"metadata": {"name": name}, "data": data}).raise_for_status()

    def look(self) -> tuple[str, str, str]:
        """One look: the reason, whether it is stalled, and the message."""
        self._runner.run(self._reconciler.reconcile(ObjectKey("Journal", self.namespace, "main")))
        found = self.server.http.get(f"/apis/mailboat.dev/v1alpha1/namespaces/{self.namespace}/journals/main").json()
        assert CANARY not in json.dumps(found)
        conditions = {condition["type"]: condition for condition in found["status"]["conditions"]}
        ready = conditions["Ready"]
        return ready["reason"], conditions["Stalled"]["status"], ready["message"]

    def refused(self) -> tuple[str, str, str]:
        """A look with another login, which the brokers refuse."""
        patient, self._connections._answer_seconds = self._connections._answer_seconds, REFUSED_SECONDS
        try:
            return self.look()
        finally:
            self._connections._answer_seconds = patient

    def close(self) -> None:
        self._runner.run(self._cluster.close())
        self._runner.close()


@pytest.fixture
def harbour(api_server: Any, namespace: str) -> Iterator[Harbour]:
    """A namespace without a Journal yet."""
    made = Harbour(api_server, namespace)
    yield made
    made.close()


@pytest.fixture
def hasty_harbour(api_server: Any, namespace: str) -> Iterator[Harbour]:
    """The same with little time for brokers to answer."""
    made = Harbour(api_server, namespace, SPOILT_SECONDS)
    yield made
    made.close()


def test_a_login_is_missing_then_malformed_then_wrong_then_right_and_rotated(
    harbour: Harbour, kafka_broker: Any
) -> None:
    sasl = {"mechanism": "PLAIN", "credentialsSecretRef": {"name": "login"}}
    harbour.journal(kafka={"bootstrapServers": [kafka_broker.servers("USERS")], "sasl": sasl})
    assert harbour.look() == ("SecretMissing", "True", "missing: Secret login")
    harbour.secret("login", username="alice", password=b"\xff\xfe no text")
    assert harbour.look() == ("SecretMissing", "True", "missing: entry password of Secret login")
    harbour.secret("login", username="alice", password=CANARY)
    reason, _, message = harbour.refused()
    assert (reason, "SASL" in message or "uthentication" in message) == ("BrokersUnreachable", True), message
    harbour.secret("login", username="alice", password="alice-secret")
    assert harbour.look()[:2] == TOPICS_TO_COME, "the pause after a failure holds for the credentials that failed"
    harbour.secret("login", username="alice", password=f"{CANARY}-rotated")
    assert harbour.refused()[0] == "BrokersUnreachable", "the old credentials were used after they were rotated"


@pytest.mark.parametrize("text", [CANARY, f"-----BEGIN CERTIFICATE-----\n{CANARY}\n-----END CERTIFICATE-----"])
def test_a_certificate_that_is_none_is_named_and_not_quoted(harbour: Harbour, kafka_broker: Any, text: str) -> None:
    tls = {"caSecretRef": {"name": "authority"}}
    harbour.journal(kafka={"bootstrapServers": [kafka_broker.bootstrap_servers], "tls": tls})
    harbour.secret("authority", **{"ca.crt": text})
    reason, is_stalled, message = harbour.look()
    assert (reason, is_stalled, "authority" in message) == ("SecretMalformed", "True", True), message


def on_bucket(url: str, bucket: str, broker: Any) -> dict[str, Any]:
    s3 = {"bucket": bucket, "endpointUrl": url, "pathStyle": True, "credentialsSecretRef": {"name": "keys"}}
    return {"kafka": {"bootstrapServers": [broker.bootstrap_servers]}, "blobs": {"s3": s3}}


def test_a_bucket_that_is_there_is_no_news_and_refused_keys_are(
    harbour: Harbour, s3_server: Any, kafka_broker: Any
) -> None:
    harbour.journal(**on_bucket(s3_server.url, s3_server.bucket, kafka_broker))
    assert harbour.look()[2] == "missing: Secret keys"
    harbour.secret("keys", accessKeyId=ADMIN.access_key_id, secretAccessKey=ADMIN.secret_access_key)
    assert harbour.look()[:2] == TOPICS_TO_COME
    harbour.secret("keys", accessKeyId=ADMIN.access_key_id, secretAccessKey=CANARY)
    reason, is_stalled, message = harbour.look()
    assert (reason, is_stalled) == ("BucketRefused", "True")
    assert message == f"access to bucket {s3_server.bucket} is denied with these credentials (HTTP 403)"


def test_a_bucket_that_is_missing_is_named(harbour: Harbour, s3_server: Any, kafka_broker: Any) -> None:
    harbour.journal(**on_bucket(s3_server.url, "nobodys", kafka_broker))
    harbour.secret("keys", accessKeyId=ADMIN.access_key_id, secretAccessKey=ADMIN.secret_access_key)
    assert harbour.look() == (
        "BucketRefused",
        "True",
        "bucket nobodys does not exist: create it, the operator creates none",
    )


def test_an_s3_server_that_does_not_answer_is_asked_again(harbour: Harbour, kafka_broker: Any) -> None:
    harbour.journal(**on_bucket("http://127.0.0.1:9", "any", kafka_broker))
    harbour.secret("keys", accessKeyId=ADMIN.access_key_id, secretAccessKey=ADMIN.secret_access_key)
    reason, is_stalled, message = harbour.look()
    assert (reason, is_stalled) == ("BucketUnreachable", "False")
    assert message.startswith("asking 127.0.0.1:9 for bucket any: ")


PEM = f"-----BEGIN CERTIFICATE-----\n{CANARY}\n-----END CERTIFICATE-----\n"
SPOILT = (f"{CANARY}", f"{CANARY}\n", f"{CANARY}\n{CANARY}", f"{CANARY}\x00", f"{CANARY}é", f"\ufeff{PEM}", PEM, "\n")
KEYS = {"accessKeyId": ADMIN.access_key_id, "secretAccessKey": ADMIN.secret_access_key}
LOGIN = {"username": "alice", "password": "alice-secret"}


def with_login(broker: Any, mechanism: str = "PLAIN", **more: Any) -> dict[str, Any]:
    sasl = {"mechanism": mechanism, "credentialsSecretRef": {"name": "spoilt"}, **more}
    return {"kafka": {"bootstrapServers": [broker.servers("USERS")], "sasl": sasl}}


def with_tls(broker: Any, field: str) -> dict[str, Any]:
    return {"kafka": {"bootstrapServers": [broker.bootstrap_servers], "tls": {field: {"name": "spoilt"}}}}


def with_bucket(broker: Any, s3_server: Any, **more: Any) -> dict[str, Any]:
    spec = on_bucket(s3_server.url, s3_server.bucket, broker)
    spec["blobs"]["s3"] |= {"credentialsSecretRef": {"name": "spoilt"}, **more}
    return spec


FIELDS: dict[str, tuple[Any, dict[str, str], str]] = {
    "a user": (lambda broker, _: with_login(broker), LOGIN, "username"),
    "a password": (lambda broker, _: with_login(broker), LOGIN, "password"),
    "a SCRAM password": (lambda broker, _: with_login(broker, "SCRAM-SHA-512"), LOGIN, "password"),
    "an authority": (lambda broker, _: with_tls(broker, "caSecretRef"), {}, "ca.crt"),
    "a certificate": (lambda broker, _: with_tls(broker, "certificateSecretRef"), {"tls.key": PEM}, "tls.crt"),
    "a private key": (lambda broker, _: with_tls(broker, "certificateSecretRef"), {"tls.crt": PEM}, "tls.key"),
    "a key id": (with_bucket, KEYS, "accessKeyId"),
    "a secret key": (with_bucket, KEYS, "secretAccessKey"),
    "a bucket's authority": (lambda *servers: with_bucket(*servers, caSecretRef={"name": "spoilt"}), KEYS, "ca.crt"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_no_failure_of_a_credential_quotes_it(
    name: str, hasty_harbour: Harbour, kafka_broker: Any, s3_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Each value is refused somewhere else: before it is used, by a client library, or by the server."""
    caplog.set_level(logging.DEBUG)
    spec, others, key = FIELDS[name]
    hasty_harbour.journal(**spec(kafka_broker, s3_server))
    reasons = set()
    for value in SPOILT:
        hasty_harbour.secret("spoilt", **{**others, key: value})
        reason, _, message = hasty_harbour.look()  # checks the whole object
        reasons.add(reason)
        assert message
    events = hasty_harbour.server.http.get(f"/api/v1/namespaces/{hasty_harbour.namespace}/events").text
    assert CANARY not in events
    assert CANARY not in caplog.text
    assert "SecretMalformed" in reasons
    assert reasons <= {"SecretMalformed", "BrokersUnreachable", "BrokersRefused", "BucketRefused", "TopicsNotReady"}
