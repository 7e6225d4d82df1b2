"""The registry of retention by consumption as protobuf, both ways."""

from __future__ import annotations

from mailboat.errors import MessageCorruptError
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.positions import LogIdentity
from mailboat.model.registrations import Registration, RegistryMessage
from mailboat.wire._generated import registry_pb2 as pb
from mailboat.wire.protobuf import MAX_MS, name, parse


def encode_registry(message: RegistryMessage) -> bytes:
    """The value of the record that carries the registry."""
    return pb.RegistryMessage(
        cluster_id=message.identity.cluster_id,
        topic_id=message.identity.topic_id,
        as_of=message.as_of,
        registrations=[
            pb.RegistryMessage.Registration(
                sub_sling_id=registration.sling_id,
                sub_agent_name=registration.name,
                next_offset=registration.next_offset,
                heard_ms=registration.heard_ms,
            )
            for registration in message.registrations
        ],
    ).SerializeToString(deterministic=True)


def decode_registry(value: bytes) -> RegistryMessage:
    """Decode the value of such a record. Raises: MessageCorruptError."""
    wire = parse(pb.RegistryMessage, value)
    if wire.as_of < 0 or any(
        registration.next_offset < 0 or not 0 <= registration.heard_ms <= MAX_MS for registration in wire.registrations
    ):
        raise MessageCorruptError("a registration has an offset or a time that can't be")
    return RegistryMessage(
        LogIdentity(name(wire.cluster_id), name(wire.topic_id)),
        Offset(wire.as_of),
        tuple(
            Registration(
                SlingId(name(registration.sub_sling_id)),
                AgentName(name(registration.sub_agent_name)),
                Offset(registration.next_offset),
                registration.heard_ms,
            )
            for registration in wire.registrations
        ),
    )
