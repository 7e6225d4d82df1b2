"""One hierarchy of errors, in which the class carries the decision.

    MailboatError
    ├── RetryableError      try again after `retry_after_seconds`; nothing was changed
    ├── PermanentError      the same input fails again
    │   ├── UsageError          invalid command line, configuration or request
    │   └── UntrustedInputError a package, message or path broke a rule or a limit; nothing was written
    └── StopError           a named state: going on could lose content, so a person decides

Every error has a name (the class name without `Error`): the same word stands in the log line, the exit message, the
HTTP problem document, the Kubernetes condition and the metric's label, and `mailboat explain NAME` explains it. Each
is defined next to the code that raises it only where no other module catches it by class, and never in a module that
mypyc compiles, as native classes lose their docstrings; the rest are here.

The docstring of a class is its explanation for users: what it means, then what to do. It is printed by `explain`.
"""

from __future__ import annotations

from typing import ClassVar, Self

from mailboat.printable import printable


class MailboatError(Exception):
    """A failure without a more specific name. The message says which operation failed."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, next_step: str | None = None, **where: object) -> None:
        """Build an error.

        Args:
            message: One sentence, without the error's name, that says what happened to which thing.
            next_step: A command or an action that brings the reader further.
            where: Facts to print after the message: `topic`, `offset`, `package`, `path`, `entry`, `limit`, …
        """
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.where: dict[str, object] = {key: value for key, value in where.items() if value is not None}

    @property
    def name(self) -> str:
        """The stable name: `JournalTrimmedError` is `JournalTrimmed` everywhere that people or programs see it."""
        return type(self).__name__.removesuffix("Error")

    def with_facts(self, /, **where: object) -> Self:
        """Add facts that only a caller has; existing facts stay."""
        self.where = {**where, **self.where}
        return self

    def with_next_step(self, next_step: str) -> Self:
        """Add a next step that only a caller has; an existing one stays."""
        self.next_step = self.next_step or next_step
        return self

    def advise(self, next_step: str) -> Self:
        """Replace the next step by a more specific one of the caller."""
        self.next_step = next_step
        return self

    def __str__(self) -> str:
        facts = " ".join(f"{key}={value}" for key, value in self.where.items())
        # of one line: facts are what a package or a message gave, and the text ends in traces and log lines
        return printable(f"{self.name}: {self.message}" + (f" ({facts})" if facts else ""))


# ---------------------------------------------------------------------------------------------------- decisions


class RetryableError(MailboatError):
    """A temporary failure. Nothing was changed; retry."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h

    def __init__(
        self, message: str, *, retry_after_seconds: float | None = None, next_step: str | None = None, **where: object
    ) -> None:
        """Build a retryable error; `retry_after_seconds` is a wish of the failed side, None leaves it to the caller."""
        super().__init__(message, next_step=next_step, **where)
        self.retry_after_seconds = retry_after_seconds


class PermanentError(MailboatError):
    """The same input fails again. Change the input or the configuration."""

    exit_code = 1
    is_of_package: ClassVar[bool] = False
    """Whether one package is the reason: a subscriber gives up that package. For any other reason it stops before it,
    as the next package would fail as well."""


class StopError(MailboatError):
    """A named state in which going on could lose content. The subscriber waits for an operator's decision."""

    exit_code = 6


class UsageError(PermanentError):
    """Invalid command line, configuration or request."""

    exit_code = 2


class OutputFailedError(PermanentError):
    """Standard output cannot be written: full disk or closed descriptor. The command may have done its work.

    Redirect the output elsewhere. `mailboat distributions ls` shows what was published.
    """


class UntrustedInputError(PermanentError):
    """A package, message or path violates a rule or a limit. It was rejected before anything was written.

    The message names the entry and the limit. If you trust the publisher, raise the limit in the configuration;
    otherwise find out where the input came from.
    """

    exit_code = 4
    is_of_package = True


# ------------------------------------------------------------------------------------------------- named states


class JournalTrimmedError(StopError):
    """Retention removed packages that this subscriber has not imported, so going on would leave a gap.

    Restore the target from a snapshot whose position the journal still holds, or import the whole tree into a new
    target. `--accept-gap` goes on without the missing packages: content may differ until it is published again.
    """


class JobLogIncompleteError(StopError):
    """The job topic lost records that no checkpoint covers, so jobs would run twice or never.

    Restart a worker that was paused for long: it reads the last checkpoint. If the error stays, switch off retention by
    time for the topic, delete it, and add the jobs again. Agents need no restart.
    """


class JobLogReplacedError(StopError):
    """The job topic was deleted or created again; the worker's calls belong to jobs of the earlier topic.

    Restart the worker; in Kubernetes its pod restarts. Add jobs, queues and schedules again: those of the earlier topic
    are gone. Agents need no restart.
    """


class JournalIncompleteError(StopError):
    """The target is new and the journal no longer holds its first packages; their content would be missing.

    Restore a snapshot whose position the journal still holds; or publish the whole tree
    (`mailboat publish --source SOURCE /`), then start with `--accept-gap`. With `--accept-gap` alone, earlier content
    is missing until it is published again.
    """


class FollowWidenedError(StopError):
    """The subscriber now follows a publisher whose packages it skipped before, so the target lacks them.

    Follow the same publishers as before; or use a new target; or publish that publisher's whole tree again and start
    with `--accept-gap`.
    """


class JournalReplacedError(StopError):
    """The target's position belongs to another journal: this one was deleted, recreated or swapped.

    Offsets are valid in one journal only. Point the subscriber at the journal it used before, or start over from a
    snapshot taken of this one or an empty target.
    """


class JournalShorterError(StopError):
    """The journal lost messages that were already imported: restored from an older copy, or truncated at its end.

    Imported content stays. Publish the lost requests again and start with `--accept-gap`, or use a new target. Do this
    before the journal grows beyond the position: packages in between may be skipped.
    """


class UnknownRequiredFeatureError(StopError):
    """A message requires a feature that this version does not support.

    Upgrade this subscriber, agent or job worker: it continues at the same message, and nothing is skipped.
    """


class MessageUndecodableError(StopError):
    """A record on the package topic is not a package message, and the configuration says to stop before such records.

    Inspect it with `mailboat journal show`. Then use another topic, or set `subscriber.undecodable: give-up`.
    """


class TargetBusyError(StopError):
    """Another process is importing into the same target. Two writers would interleave packages.

    Stop the other process, or give this subscriber its own target.
    """

    exit_code = 5


class TargetOwnedError(StopError):
    """The target belongs to a subscriber with another name, whose position is stored with the content.

    Use that name, or choose another target.
    """

    exit_code = 5


# ---------------------------------------------------------------------------------------- journal, blobs, content


class JournalUnavailableError(RetryableError):
    """The journal cannot be reached, or is locked longer than the timeout.

    A subscriber retries and gives nothing up. Publish again with the same request id. If the error persists, check the
    brokers, or which process locks the journal's file.
    """


class AppendUncertainError(JournalUnavailableError):
    """The journal did not acknowledge an append in time: the message may be stored, lost, or stored later.

    Publish again with the same request id: nothing is published twice.
    """


class JournalAccessDeniedError(PermanentError):
    """The brokers rejected the user, the password, the certificate, or a missing right. Nothing was changed.

    Check the credentials and the certificates' expiry, and grant the rights of the user's role (`docs/kafka.md`).
    """

    exit_code = 77  # EX_NOPERM of sysexits.h


class RestoreInterruptedError(RetryableError):
    """The agent stopped during a restore. The target has the old content, or the snapshot's.

    Restore again.
    """


class JournalMissingError(UsageError):
    """No journal exists at that place. Check the path, restore the journal, or run `mailboat init`.

    If the journal of a home is lost, `mailboat init --new-journal` creates a new one. Its subscribers then stop as
    JournalReplaced and need new targets.
    """


class JournalCorruptError(StopError):
    """The journal's file is damaged, lacks records, or is not a journal. Mailboat refuses to use it.

    Move `journal.db*` away for a repair (`sqlite3 journal.db .recover`). Restore a copy; or run
    `mailboat init --new-journal`: its subscribers need new targets, and all content must be published again.
    """


class JournalTooNewError(StopError):
    """The journal's file was written by a newer version in a format that this version cannot read. Upgrade."""


class MessageTooLargeError(PermanentError):
    """The message exceeds the journal's size limit. Nothing was sent.

    Lower `publisher.inline_package_bytes`, so that packages go to the blob store.
    """


class TopicMissingError(PermanentError):
    """The topic does not exist. `mailboat journal ensure` creates the topics that the configuration names.

    Brokers also report it for a topic that the user may not describe (rights by role: `docs/kafka.md`). Check
    `journal.topic_prefix` and the brokers' address.
    """


class PositionOutOfRangeError(StopError):
    """The topic does not hold the requested offset. Mailboat never resets it to the earliest or latest.

    A subscriber reports this as JournalTrimmed or JournalShorter: run `mailboat explain` with that name.
    """


class MessageCorruptError(UntrustedInputError):
    """A message cannot be decoded: broken protobuf, a missing required field, or an unknown type.

    `mailboat journal verify` lists such messages. Find what else writes to the topic, and publish the content again.
    """


class UnknownMessageError(MessageCorruptError):
    """A record on the topic has a type or version that this version does not support.

    Another program or a newer Mailboat writes to this topic: find it, or upgrade. Nothing is lost: the record stays in
    the journal.
    """


class BlobMissingError(RetryableError):
    """The blob that a package refers to is not in the blob store. The subscriber retries with growing pauses.

    Restore the blob, or publish the content again. Redrive packages that were given up (`mailboat errors redrive`).
    """


class BlobStoreUnavailableError(RetryableError):
    """The blob store cannot be reached, returns an error, or its bucket does not exist.

    A subscriber retries and gives nothing up; a publisher has published nothing. Check that the server runs, and
    `blobs.s3`.
    """


class BlobAccessDeniedError(BlobStoreUnavailableError):
    """The blob store rejected the credentials or a missing right, or the credentials have expired.

    Renew them, and check the rights of the role (`docs/blobs.md`) and the machine's clock. Renewed credentials need no
    restart.
    """

    exit_code = 77  # EX_NOPERM of sysexits.h


class BlobCorruptError(RetryableError):
    """A blob's bytes do not match the digest or length in the reference. They are not imported.

    `mailboat journal verify --deep` finds all such blobs. Restore the blob, or remove it and publish the content again.
    Redrive packages that were given up (`mailboat errors redrive`).
    """


class StorageFullError(RetryableError):
    """No space left on the device or quota. A subscriber rolls its batch back and retries.

    Free space, or raise the quota: the subscriber continues; repeat a command. With 8 MB free, `mailboat journal
    truncate` and `mailboat blobs sweep` remove old packages and blobs.
    """


class StorageReadOnlyError(RetryableError):
    """A file cannot be written: read-only file system or missing permission.

    A subscriber rolls its batch back and retries. For a command, check owner and mode of the place.
    """

    exit_code = 77  # EX_NOPERM of sysexits.h


class StorageFailedError(RetryableError):
    """The device or the target's database failed: an I/O error, or a lock held by another program.

    A subscriber rolls its batch back and retries. If the error persists, check the kernel log.
    """


class BlobStoreCorruptError(StopError):
    """An entry of the blob store's folder is a link, a pipe or a device. It was not used; nothing was written.

    Check who can write to the folder, remove the entry that the message names, and run the command again.
    """


class TargetCorruptError(StopError):
    """The target's state is unreadable or fails its integrity check. It is never overwritten automatically.

    Restore the target from a snapshot, or remove it and import everything again.
    """


class SourceChangedError(RetryableError):
    """The source changed while it was read, so the package would be inconsistent. Nothing was published; retry."""


class PlaceUnusableError(UsageError):
    """A file or folder cannot be created there: the place is taken, or the name is invalid. Nothing was changed.

    Name another place.
    """


class SourceMissingError(UsageError):
    """The source, or a path in it, does not exist. To publish a removal, use `mailboat delete`."""


class PackageCorruptError(UntrustedInputError):
    """A package's bytes do not match its digest, length or structure, or it owns a path that its message does not name.

    Nothing was written. Publish the content again.
    """


class UnknownPackageTypeError(PermanentError):
    """The package type is unknown, or the file is not a package. The message lists the supported types.

    Another kind of agent or a newer Mailboat writes to this topic: find it, or upgrade and redrive the package
    (`mailboat errors redrive`).
    """

    exit_code = 4
    is_of_package = True


class LimitExceededError(UntrustedInputError):
    """An input exceeds a limit on size, depth or count. The message names the entry and the limit. Nothing was written.

    If you trust the publisher, raise that limit under `limits` and redrive the package (`mailboat errors redrive`);
    otherwise publish smaller parts.
    """


class PathRefusedError(UntrustedInputError):
    """A path or name is not allowed in content, or would lead outside its root. Nothing was written.

    Correct the path; or rename at the source what the message names, and publish it again.
    """


class ResourceInvalidError(UntrustedInputError):
    """A custom resource has an unknown field or an invalid value. The operator did nothing for it.

    The message names the field. The API server checked it against other definitions than the operator's: apply the
    `crds/` of the operator's version.
    """


class ValueRefusedError(UntrustedInputError):
    """A property value does not have the form of its type. The message names the type and the value.

    Correct the value or the type at the source, and publish the path again.
    """


class RequestConflictError(UsageError):
    """The request id was already used for a different request. Use a new id for a new request."""


class ThrottledError(RetryableError):
    """The request was delayed by backpressure: subscribers lag too far, or this caller exceeds its share.

    Nothing was published. Retry after the time in the message. `mailboat status` shows which subscribers lag;
    `publisher.throttle` sets where delays begin.
    """


class AgentMissingError(UsageError):
    """No agent has that name here. `mailboat status` lists publishers and subscribers."""


class DistributionMissingError(UsageError):
    """The log has no package with that id: it was never published, or retention removed it.

    `mailboat journal show` lists the messages in the log.
    """


class QueueNotClearableError(PermanentError):
    """The subscriber is not editable, so its queue cannot be cleared. Nothing was sent.

    Set `editable: true` for that subscriber and restart its agent; or let it give the package up
    (`subscriber.max_retries`).
    """


class CommandMissingError(UsageError):
    """No command with that id is known: it was never sent, or retention removed it from the log.

    `mailboat queues ls` shows whether it had an effect.
    """


class AccessDeniedError(PermanentError):
    """The token is unknown, or does not permit this request. Nothing was done.

    Pass a token with `--token-file` or MAILBOAT_TOKEN. The agent's `http.tokens` lists what each permits.
    """

    exit_code = 77  # EX_NOPERM of sysexits.h


class PathForbiddenError(AccessDeniedError):
    """The request names a path that its token does not permit. The whole request was rejected.

    Request only paths that the token covers, or widen `http.tokens[].paths` in the agent's configuration.
    """


class ImportTimeoutError(RetryableError):
    """Importing one package exceeded its time limit. It was rolled back and is retried.

    If the error persists, raise `subscriber.package_timeout_seconds`, or publish the content in smaller parts.
    """


class ProcessorFailedError(RetryableError):
    """A pre-import hook failed, so the package was not imported. It is retried.

    The message names the hook, its exit code and last line. Repair the hook and redrive what was given up
    (`mailboat errors redrive`), or drop the package (`mailboat queues remove`).
    """


class DemoFailedError(PermanentError):
    """A process of the demo ended or stalled unexpectedly. The message has its last output.

    The demo's folder is kept: `mailboat --home DIR status`.
    """


class KubectlFailedError(PermanentError):
    """A kubectl call of `kubectl mailboat` failed; the message ends with kubectl's own error.

    It needs the rights to get Publishers and the token's Secret, and to create `pods/portforward`. Try
    `kubectl get publishers.mailboat.dev`.
    """


# --------------------------------------------------------------------------------------------------- the operator


class ClusterUnavailableError(RetryableError):
    """The Kubernetes API did not answer, or is overloaded. The operator retries."""


class ClusterConflictError(RetryableError):
    """Another client changed or replaced the object in the meantime. The operator reconciles it again."""


class ClusterRefusedError(PermanentError):
    """The Kubernetes API rejected a request: the operator lacks a right, or the object is invalid.

    The message is the API's own. Check the operator's ClusterRole, quotas and admission policies.
    """


class OperatorDefectError(PermanentError):
    """Internal error in the operator while it reconciled an object. It retries with back-off.

    The operator's log has the traceback under the object's name. Report it with the log and the object's spec.
    """


class AgentUnreachableError(RetryableError):
    """An agent did not answer in time: it may be starting or stopping, at another address, or cut off by the network.

    Publish again with the same request id: nothing is published twice. In Kubernetes the operator retries: check the
    Publisher's pod, its Service, and network policies.
    """


class AgentDefectError(PermanentError):
    """Internal error in the agent, or the server at that URL is not a Mailboat agent.

    Search the agent's log for the incident id: the log has the traceback, which is never sent to callers.
    """


class QueueMissingError(UsageError):
    """The publisher has no such queue: the subscriber is unknown, expired, or has no error queue.

    `mailboat queues ls` lists the queues.
    """


class BuildMissingError(UsageError):
    """The log has no package of a build with that id: none was published yet, or retention removed them.

    `mailboat bulk status` lists builds.
    """


class AgentRefusedError(PermanentError):
    """A publisher's agent rejected a request for the reason in the message.

    Correct the object's spec. A failed Distribution stays failed: create another one.
    """


class BucketUnreachableError(RetryableError):
    """The S3 server did not answer, or returned a server error. The operator retries.

    Check `spec.blobs.s3.endpointUrl`, `caSecretRef`, and the network policy between operator and server.
    """


class BucketRefusedError(PermanentError):
    """The bucket does not exist, or not for these credentials or in this region: the message says which.

    Create the bucket, or correct `spec.blobs.s3`. The operator tries again.
    """


class BrokersUnreachableError(RetryableError):
    """The brokers did not answer in time. The operator retries with back-off.

    Check `spec.kafka.bootstrapServers`, the network policy between operator and brokers, and the credentials.
    """


class BrokersRefusedError(PermanentError):
    """The brokers rejected a request for the reason in the message: a missing right, or a broker setting.

    Grant the right to the operator's user (`docs/kafka.md`), or correct the setting. The operator tries again.
    """


class SecretMissingError(RetryableError):
    """A Secret that a Journal names is missing, or lacks a required entry.

    Create it in the Journal's namespace, with the entry that the message names. The operator retries.
    """


class SecretMalformedError(RetryableError):
    """A Secret's entry is not in the expected format, such as a certificate in PEM. The message never quotes it.

    Correct the entry that the message names. The operator retries.
    """
