"""Names of queues and entries: what is written can be read, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.errors import UsageError
from mailboat.model.identifiers import AgentName, Offset, SlingId, TopicName
from mailboat.queues.queue_names import EntryId, QueueName, parse_entry_id, parse_queue_name

SLING_ID = SlingId("0f3c1b52-6a1e-4a51-9b39-1d2f3c4b5a69")

topics = st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True).map(TopicName)
offsets = st.integers(0, 2**63 - 1).map(Offset)
agent_names = st.from_regex(r"[a-z0-9][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True).map(AgentName)


@given(topic=topics, offset=offsets)
def test_an_entry_id_survives_writing_and_reading(topic: TopicName, offset: Offset) -> None:
    assert parse_entry_id(str(EntryId(topic, offset))) == EntryId(topic, offset)


def test_an_entry_id_has_the_originals_form() -> None:
    assert str(EntryId(TopicName("package"), Offset(42))) == "package-0@42"


def test_offsets_beyond_32_bits_stay_what_they_are() -> None:
    assert parse_entry_id("package-0@3000000000").offset == 3_000_000_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "package",
        "package-0",
        "package@1",
        "package-0@",
        "package-0@-1",
        "package-0@1@2",
        "package-1@1",
        "package-0@1 ",
        "package-0@1\n",
        "package-0@9223372036854775808",
        "package-0@" + "9" * 5000,
        "pack/age-0@1",
        "package-0@\N{ARABIC-INDIC DIGIT SEVEN}",
        "-0@1",
    ],
)
def test_what_is_no_entry_is_refused_in_a_short_message(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_entry_id(text)
    assert len(str(refused.value)) < 250


@given(name=agent_names.filter(lambda name: not name.endswith("-error")), is_error_queue=st.booleans())
def test_a_queue_name_survives_writing_and_reading(name: AgentName, is_error_queue: bool) -> None:
    queue_name = QueueName(SLING_ID, name, is_error_queue)
    assert parse_queue_name(str(queue_name)) == queue_name


def test_dashes_in_agent_names_do_not_confuse() -> None:
    assert parse_queue_name(f"{SLING_ID}-my-own-agent") == QueueName(SLING_ID, AgentName("my-own-agent"))


@pytest.mark.parametrize("text", ["", "short-agent", SLING_ID, f"{SLING_ID}-", f"{SLING_ID}x-agent", f"{SLING_ID}-a b"])
def test_what_is_no_queue_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_queue_name(text)
