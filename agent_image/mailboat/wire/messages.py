"""The messages of the topics as protobuf, both ways.

Decoding checks what the schema demands and what the model promises (paths, digests, ranges); encoding trusts the
model. Unknown fields are harmless and stay in the bytes, which are never rewritten; an unknown type is reported by
`UnknownMessageError`, never dropped without an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from mailboat.clock import LAST_MS
from mailboat.errors import MessageCorruptError, UnknownMessageError, UntrustedInputError
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId
from mailboat.model.messages import (
    MAX_ANNOUNCED_CALLS,
    AfterCall,
    CommandMessage,
    CommandResult,
    CommandState,
    CommandVerb,
    DiscoveryMessage,
    FailureCause,
    HookCalls,
    Message,
    PackageMessage,
    PackageStatus,
    PingMessage,
    PoolBacklog,
    RedriveMessage,
    ReportStart,
    StatusMessage,
    SubscriberState,
    SuspendMessage,
    Suspension,
)
from mailboat.model.pieces import PieceMessage
from mailboat.model.positions import LogIdentity
from mailboat.model.registrations import Registration, RegistryMessage
from mailboat.wire import headers
from mailboat.wire._generated import messages_pb2 as pb
from mailboat.wire._generated import registry_pb2 as registry_pb
from mailboat.wire.package_messages import decode_package, encode_package
from mailboat.wire.piece_messages import decode_piece, encode_piece
from mailboat.wire.protobuf import MAX_NAME_CHARACTERS, cut, name, parse, wall_ms


def encode_registry(message: RegistryMessage) -> bytes:
    """The value of the record that carries the registry."""
    return registry_pb.RegistryMessage(
        cluster_id=message.identity.cluster_id,
        topic_id=message.identity.topic_id,
        as_of=message.as_of,
        registrations=[
            registry_pb.RegistryMessage.Registration(
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
    wire = parse(registry_pb.RegistryMessage, value)
    if wire.as_of < 0 or any(
        registration.next_offset < 0 or not 0 <= registration.heard_ms <= LAST_MS for registration in wire.registrations
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


_COMMAND_STATES: Final = (CommandState.DONE, CommandState.REFUSED)
_STATUSES: Final = (PackageStatus.REMOVED_FAILED, PackageStatus.REMOVED, PackageStatus.IMPORTED)

_TEXT_CHARACTERS: Final = 1_000


def encode_message(message: Message) -> tuple[headers.Headers, bytes]:
    """The headers and the value of the record that carries the message."""
    kind, encode = _ENCODERS[type(message)]
    return headers.headers_for(kind), encode(message)


def decode_message(record_headers: headers.Headers, value: bytes) -> Message:
    """Decode a record of any topic but the event topic.

    Raises:
        UnknownMessageError: When no decoder accepts the headers.
        MessageCorruptError: When the value is not what the headers promise; a missing required field is named.
        PathRefusedError: When it names a path that content can't have.
    """
    kind = headers.message_type_of(record_headers)
    decode = None if kind is None else _DECODERS.get(kind)
    if decode is None:
        raise UnknownMessageError(f"a record with the headers {_printable(record_headers)} is of no known type")
    return decode(value)


def readable_message(record_headers: headers.Headers, value: bytes) -> Message | None:
    """As `decode_message`; None where that fails: anyone may write to a topic, and `journal verify` names it."""
    try:
        return decode_message(record_headers, value)
    except UntrustedInputError:
        return None


def _encode_status(message: StatusMessage) -> bytes:
    return pb.PackageStatusMessage(
        sub_sling_id=message.sub_sling_id,
        sub_agent_name=message.sub_agent_name,
        pub_agent_name=message.pub_agent_name,
        offset=message.offset,
        status=pb.PackageStatusMessage.Status.Value(message.status.value),
        pkg_id=message.package_id,
        cause=_encode_cause(message.cause),
        attempts=message.attempts or None,
        created_ms=message.created_ms,
        staged_behind=message.staged_behind,
    ).SerializeToString(deterministic=True)


def _decode_status(value: bytes) -> StatusMessage:
    wire = parse(pb.PackageStatusMessage, value)
    return StatusMessage(
        SlingId(name(wire.sub_sling_id)),
        AgentName(name(wire.sub_agent_name)),
        AgentName(name(wire.pub_agent_name)),
        _offset(wire.offset),
        _STATUSES[wire.status],
        PackageId(cut(wire.pkg_id, MAX_NAME_CHARACTERS)) or None,
        _decode_cause(wire.cause) if wire.HasField("cause") else None,
        wire.attempts,
        wall_ms(wire.created_ms),
        AgentName(name(wire.staged_behind)) or None,
    )


def _encode_discovery(message: DiscoveryMessage) -> bytes:
    retries = -1 if message.max_retries is None else message.max_retries
    return pb.DiscoveryMessage(
        sub_sling_id=message.sub_sling_id,
        sub_agent_name=message.sub_agent_name,
        subscriber_state=map(_encode_state, message.states),
        subscriber_configuration=pb.SubscriberConfiguration(editable=message.is_editable, max_retries=retries),
        state=message.state,
        cause=_encode_cause(message.cause),
        announced_ms=message.announced_ms,
        target=message.target,
        is_ready=message.is_ready,
        ready_reason=message.ready_reason,
        is_durable=message.is_durable or None,
        given_up=message.given_up,
        next_offset=message.next_offset,
        log_identity=_encode_identity(message.log_identity),
        follows_all=message.follows_all or None,
        reports=_encode_reports(message.reports),
        after_calls=_encode_calls(message.after_calls),
        former_state=map(_encode_state, message.former),
        suspension=_encode_suspension(message.suspension),
        backlog=_encode_backlog(message.backlog),
    ).SerializeToString(deterministic=True)


def _decode_discovery(value: bytes) -> DiscoveryMessage:
    wire = parse(pb.DiscoveryMessage, value)
    retries = wire.subscriber_configuration.max_retries
    return DiscoveryMessage(
        SlingId(name(wire.sub_sling_id)),
        AgentName(name(wire.sub_agent_name)),
        tuple(map(_decode_state, wire.subscriber_state)),
        wire.subscriber_configuration.editable,
        None if retries < 0 else retries,
        cut(wire.state, MAX_NAME_CHARACTERS) or None,
        _decode_cause(wire.cause) if wire.HasField("cause") else None,
        wall_ms(wire.announced_ms),
        cut(wire.target, _TEXT_CHARACTERS) or None,
        wire.is_ready if wire.HasField("is_ready") else None,
        cut(wire.ready_reason, _TEXT_CHARACTERS) or None,
        wire.is_durable,
        _count(wire.given_up) if wire.HasField("given_up") else None,
        _offset(wire.next_offset) if wire.HasField("next_offset") else None,
        LogIdentity(name(wire.log_identity.cluster_id), name(wire.log_identity.topic_id))
        if wire.HasField("log_identity")
        else None,
        wire.follows_all,
        _decode_reports(wire.reports) if wire.HasField("reports") else None,
        _decode_calls(wire.after_calls) if wire.HasField("after_calls") else None,
        tuple(map(_decode_state, wire.former_state)),
        _decode_suspension(wire.suspension) if wire.HasField("suspension") else None,
        PoolBacklog(_offset(wire.backlog.next_offset), _count(wire.backlog.queued))
        if wire.HasField("backlog")
        else None,
    )


def _encode_backlog(backlog: PoolBacklog | None) -> pb.Backlog | None:
    return None if backlog is None else pb.Backlog(next_offset=backlog.next_offset, queued=backlog.queued)


def _encode_suspension(suspension: Suspension | None) -> pb.Suspension | None:
    return None if suspension is None else pb.Suspension(since_ms=suspension.since_ms, until_ms=suspension.until_ms)


def _decode_suspension(wire: pb.Suspension) -> Suspension:
    return Suspension(wall_ms(wire.since_ms) or 0, wall_ms(wire.until_ms))


def _encode_state(state: SubscriberState) -> pb.SubscriberState:
    return pb.SubscriberState(
        pub_agent_name=state.pub_agent_name,
        offset=state.offset,
        retries=state.retries,
        reports=_encode_reports(state.reports),
    )


def _decode_state(wire: pb.SubscriberState) -> SubscriberState:
    reports = _decode_reports(wire.reports) if wire.HasField("reports") else None
    return SubscriberState(AgentName(name(wire.pub_agent_name)), wire.offset, wire.retries, reports)


def _encode_reports(reports: ReportStart | None) -> pb.ReportStart | None:
    return (
        None
        if reports is None
        else pb.ReportStart(offset=reports.offset, is_first=reports.is_first or None, until=reports.until)
    )


def _decode_reports(wire: pb.ReportStart) -> ReportStart:
    until = _offset(wire.until) if wire.HasField("until") else None
    return ReportStart(_offset(wire.offset), wire.is_first, until)


def _encode_calls(calls: HookCalls | None) -> pb.HookCalls | None:
    if calls is None:
        return None
    failed = [
        pb.FailedCall(
            offset=call.offset,
            attempts=call.attempts,
            cause=_encode_cause(call.cause),
            set_aside=call.is_set_aside or None,
        )
        for call in calls.failed[:MAX_ANNOUNCED_CALLS]
    ]
    return pb.HookCalls(
        waiting=calls.waiting, set_aside=calls.set_aside, cause=_encode_cause(calls.cause), failed=failed
    )


def _decode_calls(wire: pb.HookCalls) -> HookCalls:
    cause = _decode_cause(wire.cause) if wire.HasField("cause") else None
    failed = tuple(
        AfterCall(
            _offset(call.offset),
            _count(call.attempts),
            _decode_cause(call.cause) if call.HasField("cause") else None,
            call.set_aside,
        )
        for call in wire.failed[:MAX_ANNOUNCED_CALLS]
    )
    return HookCalls(_count(wire.waiting), _count(wire.set_aside), cause, failed)


def _encode_identity(identity: LogIdentity | None) -> pb.LogIdentity | None:
    return None if identity is None else pb.LogIdentity(cluster_id=identity.cluster_id, topic_id=identity.topic_id)


def _encode_command(message: CommandMessage) -> bytes:
    return pb.CommandMessage(
        sub_sling_id=message.sub_sling_id,
        sub_agent_name=message.sub_agent_name,
        clear_command=pb.ClearCommand(offset=message.clear_up_to_offset),
        pub_agent_name=message.pub_agent_name,
        command_id=message.command_id,
        sent_ms=message.sent_ms,
    ).SerializeToString(deterministic=True)


def _decode_command(value: bytes) -> CommandMessage:
    wire = parse(pb.CommandMessage, value)
    if not wire.HasField("clear_command"):
        raise MessageCorruptError("a CommandMessage carries no command that this version supports")
    return CommandMessage(
        SlingId(name(wire.sub_sling_id)),
        AgentName(name(wire.sub_agent_name)),
        _offset(wire.clear_command.offset),
        AgentName(name(wire.pub_agent_name)) or None,
        name(wire.command_id) or None,
        wall_ms(wire.sent_ms),
    )


def _encode_redrive(message: RedriveMessage) -> bytes:
    return pb.RedriveMessage(
        sub_sling_id=message.sub_sling_id,
        sub_agent_name=message.sub_agent_name,
        offset=message.offset,
        pub_agent_name=message.pub_agent_name,
        command_id=message.command_id,
        sent_ms=message.sent_ms,
    ).SerializeToString(deterministic=True)


def _decode_redrive(value: bytes) -> RedriveMessage:
    wire = parse(pb.RedriveMessage, value)
    return RedriveMessage(
        SlingId(name(wire.sub_sling_id)),
        AgentName(name(wire.sub_agent_name)),
        _offset(wire.offset),
        AgentName(name(wire.pub_agent_name)) or None,
        name(wire.command_id) or None,
        wall_ms(wire.sent_ms),
    )


def _encode_suspend(message: SuspendMessage) -> bytes:
    return pb.SuspendMessage(
        sub_sling_id=message.sub_sling_id,
        sub_agent_name=message.sub_agent_name,
        suspended=message.suspended,
        until_ms=message.until_ms,
        command_id=message.command_id,
        sent_ms=message.sent_ms,
    ).SerializeToString(deterministic=True)


def _decode_suspend(value: bytes) -> SuspendMessage:
    wire = parse(pb.SuspendMessage, value)
    return SuspendMessage(
        SlingId(name(wire.sub_sling_id)),
        AgentName(name(wire.sub_agent_name)),
        wire.suspended,
        wall_ms(wire.until_ms),
        name(wire.command_id) or None,
        wall_ms(wire.sent_ms),
    )


def _encode_result(message: CommandResult) -> bytes:
    return pb.CommandResult(
        sub_sling_id=message.sub_sling_id,
        sub_agent_name=message.sub_agent_name,
        pub_agent_name=message.pub_agent_name,
        offset=message.offset,
        state=pb.CommandResult.State.Value(message.state.name),
        verb=message.verb,
        command_id=message.command_id,
        removed=message.removed or None,
        message=message.message,
        created_ms=message.created_ms,
    ).SerializeToString(deterministic=True)


def _decode_result(value: bytes) -> CommandResult:
    wire = parse(pb.CommandResult, value)
    return CommandResult(
        name(wire.command_id),
        SlingId(name(wire.sub_sling_id)),
        AgentName(name(wire.sub_agent_name)),
        _verb(wire.verb),
        _offset(wire.offset),
        _COMMAND_STATES[wire.state],
        AgentName(name(wire.pub_agent_name)) or None,
        _count(wire.removed),
        cut(wire.message, _TEXT_CHARACTERS) or None,
        wall_ms(wire.created_ms),
    )


def _verb(text: str) -> CommandVerb:
    try:
        return CommandVerb(text)
    except ValueError as error:
        raise MessageCorruptError(f"{text[:40]!r} is not a command that this version supports") from error


def _encode_cause(cause: FailureCause | None) -> pb.Cause | None:
    if cause is None:
        return None
    return pb.Cause(
        code=cause.code,
        message=cause.message,
        path=cause.path,
        trace_excerpt=cause.trace_excerpt,
        truncated=cause.is_truncated or None,
    )


def _decode_cause(wire: pb.Cause) -> FailureCause:
    return FailureCause.bounded(
        wire.code, wire.message, wire.path or None, wire.trace_excerpt or None, is_truncated=wire.truncated
    )


def _offset(value: int) -> Offset:
    if value < 0:
        raise MessageCorruptError(f"{value} is not an offset")
    return Offset(value)


def _count(value: int) -> int:
    if value < 0:
        raise MessageCorruptError(f"{value} is not a number of packages")
    return value


def _printable(record_headers: headers.Headers) -> str:
    return ", ".join(f"{name}={value[:40]!r}" for name, value in record_headers[:8]) or "none"


_ENCODERS: Final[Mapping[type, tuple[int, Callable[..., bytes]]]] = MappingProxyType(
    {
        PackageMessage: (headers.PACKAGE, encode_package),
        StatusMessage: (headers.STATUS, _encode_status),
        DiscoveryMessage: (headers.DISCOVERY, _encode_discovery),
        CommandMessage: (headers.COMMAND, _encode_command),
        RedriveMessage: (headers.REDRIVE, _encode_redrive),
        SuspendMessage: (headers.SUSPEND, _encode_suspend),
        CommandResult: (headers.COMMAND_RESULT, _encode_result),
        PingMessage: (headers.PING, lambda _: b""),
        PieceMessage: (headers.PIECE, encode_piece),
        RegistryMessage: (headers.REGISTRY, encode_registry),
    }
)
_DECODERS: Final[Mapping[int, Callable[[bytes], Message]]] = MappingProxyType(
    {
        headers.PACKAGE: decode_package,
        headers.STATUS: _decode_status,
        headers.DISCOVERY: _decode_discovery,
        headers.COMMAND: _decode_command,
        headers.REDRIVE: _decode_redrive,
        headers.SUSPEND: _decode_suspend,
        headers.COMMAND_RESULT: _decode_result,
        headers.PING: lambda _: PingMessage(),
        headers.PIECE: decode_piece,
        headers.REGISTRY: decode_registry,
    }
)
