"""One hierarchy of errors, in which the class carries the decision.

    MailboatError
    ├── RetryableError      try again after `retry_after_seconds`; nothing was changed
    ├── PermanentError      the same input fails in the same way for ever
    │   ├── UsageError          the caller asked for something that can't be meant
    │   └── UntrustedInputError a package, message or path broke a rule or a limit; nothing was written
    └── StopError           a named state: going on could lose content, so a person decides

Every error has a name (the class name without `Error`): the same word stands in the log line, the exit message, the
HTTP problem document, the Kubernetes condition and the metric's label, and `mailboat explain NAME` knows it. An error
is defined beside the code that raises it only where no other module catches it by class, and never in a module that
mypyc compiles, as native classes lose their docstrings; the rest are here.

The docstring of a class is its explanation for users: what it means, then what to do. It is printed by `explain`.
"""

from __future__ import annotations

from typing import ClassVar, Self


class MailboatError(Exception):
    """Something failed that Mailboat has no more exact name for. The message says what was being done."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, next_step: str | None = None, **where: object) -> None:
        """Build an error.

        Args:
            message: One sentence, without the error's name, that says what happened to which thing.
            next_step: A command or an action that brings the reader further.
            where: Facts to print beside the message: `topic`, `offset`, `package`, `path`, `entry`, `limit`, …
        """
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.where: dict[str, object] = {key: value for key, value in where.items() if value is not None}

    @property
    def name(self) -> str:
        """The stable name: `JournalTrimmedError` is `JournalTrimmed` everywhere that people or programs see it."""
        return type(self).__name__.removesuffix("Error")

    def with_facts(self, **where: object) -> Self:
        """The error with facts that only a caller knows; what it says already stays."""
        self.where = {**where, **self.where}
        return self

    def __str__(self) -> str:
        facts = " ".join(f"{key}={value}" for key, value in self.where.items())
        return f"{self.name}: {self.message}" + (f" ({facts})" if facts else "")


# ---------------------------------------------------------------------------------------------------- decisions


class RetryableError(MailboatError):
    """A passing fault. Nothing was changed; the same call may succeed later."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h

    def __init__(
        self, message: str, *, retry_after_seconds: float | None = None, next_step: str | None = None, **where: object
    ) -> None:
        """Build a retryable error; `retry_after_seconds` is a wish of the failed side, None leaves it to the caller."""
        super().__init__(message, next_step=next_step, **where)
        self.retry_after_seconds = retry_after_seconds


class PermanentError(MailboatError):
    """The same input would fail in the same way again. Change the input or the configuration."""

    exit_code = 1
    is_of_package: ClassVar[bool] = False
    """Whether one package is the reason: a subscriber gives up that package. For any other reason it stops before it,
    as the next package would fail as well."""


class StopError(MailboatError):
    """A named state in which going on could lose content. The subscriber waits for a person's decision."""

    exit_code = 6


class UsageError(PermanentError):
    """The command line, the configuration or the call asks for something that can't be meant."""

    exit_code = 2


class InternalDefectError(PermanentError):
    """A command failed in a way that Mailboat has no name for: a defect of Mailboat.

    Run the same command with `--verbose`, which prints the trace, and report both at
    https://github.com/mailboat-dev/mailboat/issues. What the command did before it failed stands.
    """

    exit_code = 70  # EX_SOFTWARE of sysexits.h


class PermissionMissingError(PermanentError):
    """The file system refuses access to a file or folder that the command needs. See the permissions of the place."""

    exit_code = 77  # EX_NOPERM of sysexits.h


class OutputFailedError(PermanentError):
    """Standard output can't be written: a full disk, or a closed descriptor. The command may have done its work.

    Send the output elsewhere. `mailboat distributions ls` shows what was published.
    """


class UntrustedInputError(PermanentError):
    """A package, message or path broke a rule or a limit, so it was refused before anything was written.

    The message names the entry and the limit. A publisher that you trust may need a higher limit in the configuration;
    otherwise look at where the input came from.
    """

    exit_code = 4
    is_of_package = True


# ------------------------------------------------------------------------------------------------- named states


class JournalTrimmedError(StopError):
    """Retention removed packages that this subscriber has not imported, so going on would leave a gap.

    Restore the target from a snapshot whose position the journal still holds, or import the whole tree anew, or go on
    with `--accept-gap` if the content may differ from the source until it is published again.
    """


class JournalIncompleteError(StopError):
    """The target is new, and the journal no longer holds its first packages, so the target would lack their content.

    Best, publish the whole tree (`mailboat publish --source SOURCE /`), then start with `--accept-gap`: a subscriber
    starts at the oldest package that the journal holds, and comes to the whole tree. Or restore a snapshot of this
    subscriber's target, with a position that the journal still holds. With `--accept-gap` alone the target lacks what
    was published before, until it is published again. A journal that never held anything below its oldest package
    looks the same.
    """


class FollowWidenedError(StopError):
    """The subscriber follows a publisher whose packages it passed over before, so the target lacks them.

    Follow the publishers that were followed before; or give the subscriber a new target, which imports everything that
    the journal holds; or publish the whole tree of that publisher again, and start with `--accept-gap`.
    """


class JournalReplacedError(StopError):
    """The journal is not the one that the target's position belongs to: it was deleted, recreated or swapped.

    Offsets of one journal mean nothing in another. Point the subscriber at the journal it knows, or start the target
    anew from a snapshot or an empty folder.
    """


class JournalShorterError(StopError):
    """The journal lost messages that were already imported: it was restored from an older copy, or lost its tail.

    What was imported stays. Publish the lost requests again and replay what the journal holds with `--accept-gap`, or
    start the target anew. Never wait until the journal has grown beyond the position: the packages between would not
    be imported.
    """


class UnknownRequiredFeatureError(StopError):
    """A message says that it can be understood only with a feature that this version does not have.

    Upgrade this subscriber. It stands before the message and imports it afterwards; nothing is skipped.
    """


class MessageUndecodableError(StopError):
    """A record on the package topic is no package message, and the subscriber is told to stop before such.

    See what stands there with `mailboat journal show`; follow another topic, or set the policy to give up.
    """


class TargetBusyError(StopError):
    """Another process is importing into the same target. Two writers would interleave packages.

    Stop the other process, or give this subscriber a target of its own.
    """

    exit_code = 5


class TargetOwnedError(StopError):
    """The target belongs to a subscriber of another name, whose position is stored with the content.

    Use that name, or choose another target.
    """

    exit_code = 5


# ---------------------------------------------------------------------------------------- journal, blobs, content


class JournalUnavailableError(RetryableError):
    """The journal can't be reached or is locked for longer than the time allowed.

    A subscriber waits and tries again by itself, and gives nothing up. Publish again with the same request id. When it
    stays, look at whether the brokers run, or which process holds the journal's file.
    """


class AppendUncertainError(JournalUnavailableError):
    """The journal did not answer an append in time, so the message may be there, or not, or come later.

    Publish again with the same request id: a message that is there is found, and not sent a second time.
    """


class JournalAccessDeniedError(PermanentError):
    """The brokers refused the user, the password, the certificate, or a right that the call needs. Nothing was changed.

    Check the credentials in the configuration and when the certificates expire, and give the user the rights of its
    role (`docs/kafka.md`).
    """

    exit_code = 77  # EX_NOPERM of sysexits.h


class JournalMissingError(UsageError):
    """There is no journal at that place. Check the path, put the journal back, or make a home with `mailboat init`.

    In a home whose journal is lost, `mailboat init --new-journal` makes a new one: subscribers of the lost one stop as
    JournalReplaced, and need new targets. A journal is never made anew in silence, since its readers would take it for
    the one that they know.
    """


class JournalCorruptError(StopError):
    """The journal's file is damaged, lacks records within its bounds, or is no journal. Nobody goes on over it.

    Keep the file for a repair (`sqlite3 journal.db .recover`), restore a copy or make a new journal with
    `mailboat init`, and start the subscribers' targets from a snapshot; they notice that the journal is another one.
    """


class JournalTooNewError(StopError):
    """The journal's file was written by a newer version, in a form that this one does not know. Upgrade this one."""


class MessageTooLargeError(PermanentError):
    """The message is larger than the journal takes. Nothing was sent.

    Lower `inline_package_bytes` in the configuration, so that packages go to the blob store.
    """


class TopicMissingError(PermanentError):
    """The topic does not exist. `mailboat journal ensure` makes the topics that the configuration names.

    Brokers with access rights say the same of a topic that this user may not describe: see the rights by role in
    `docs/kafka.md`. Check `journal.topic_prefix` and the brokers' address, too.
    """


class PositionOutOfRangeError(StopError):
    """A read was asked for a position that the topic does not hold. It is never moved to the earliest or the latest.

    Where a subscriber meets it, it is reported as JournalTrimmed or JournalShorter.
    """


class MessageCorruptError(UntrustedInputError):
    """A message can't be decoded: broken protobuf, a required field missing, or a type nobody knows.

    `mailboat journal verify` names such messages. Look at what else writes to the topic, and publish again what was
    meant.
    """


class UnknownMessageError(MessageCorruptError):
    """A record on the topic has a type or version that this version does not know.

    Another program writes to this topic, or a newer Mailboat does. Nothing is lost: the record stays in the journal.
    """


class BlobMissingError(RetryableError):
    """The blob that a package refers to is not in the blob store (yet). It is asked for again with growing pauses.

    Put the blob back from a copy, or publish the content again. A package that was given up meanwhile is imported by
    `mailboat errors redrive`.
    """


class BlobStoreUnavailableError(RetryableError):
    """The blob store can't be reached, answers with an error, or its bucket is not there.

    A subscriber waits and tries again by itself, and gives nothing up; a publisher has published nothing. Look at
    whether the server runs, and at `blobs.s3` in the configuration.
    """


class BlobAccessDeniedError(BlobStoreUnavailableError):
    """The blob store refused the credentials, or a right that the call needs; or the credentials have expired.

    Renew them, and check the rights of the role: publishers put and get, subscribers get, a sweeper lists and deletes,
    and all need to list, or a missing blob looks like a forbidden one. A clock that is minutes off is refused, too.
    Credentials are read again when the server calls them expired, so a subscriber goes on without a restart.
    """

    exit_code = 77  # EX_NOPERM of sysexits.h


class BlobCorruptError(RetryableError):
    """The bytes of a blob do not have the digest or the length that the reference promises. They are not imported.

    `mailboat journal verify --deep` finds all such blobs. Put the blob back from a copy, or remove it and publish the
    content again; a package that was given up meanwhile is imported by `mailboat errors redrive`.
    """


class StorageFullError(RetryableError):
    """No space is left on the device or in the quota. The batch was rolled back and is tried again."""


class StorageReadOnlyError(RetryableError):
    """A file can't be written: read-only file system or missing permission. The batch was rolled back.

    A subscriber waits and tries again. A command ends with exit code 77: see the permissions of the place.
    """

    exit_code = 77  # EX_NOPERM of sysexits.h


class StorageFailedError(RetryableError):
    """The device or the database under the target failed in another way: an I/O error, or a lock held by a stranger.

    The batch was rolled back and is tried again. Look at the kernel's log if it stays.
    """


class BlobStoreCorruptError(StopError):
    """An entry of the blob store's folder is a link, a pipe or a device. It was not used, and nothing was written.

    Look at who can write into the folder, remove the entry that the message names, and run the command again.
    """


class TargetCorruptError(StopError):
    """The target's own state can't be read or fails its integrity check. It is never replaced in silence.

    Restore the target from a snapshot, or remove it and let the subscriber import everything again.
    """


class SourceChangedError(RetryableError):
    """The source changed while it was read, so the package would have been torn. Nothing was published."""


class SourceMissingError(UsageError):
    """The source, or a path in it, does not exist. To publish a removal, use `mailboat delete`."""


class PackageCorruptError(UntrustedInputError):
    """The bytes of a package do not have the digest, the length or the structure that they should have.

    Or it owns a path that its message does not name. Nothing of it was written. Publish the content again.
    """


class UnknownPackageTypeError(PermanentError):
    """A package is of a type that no codec is known for, or a file is no package at all.

    Another kind of agent writes to this topic, or a newer Mailboat does. The message names the types that are known.
    """

    exit_code = 4
    is_of_package = True


class LimitExceededError(UntrustedInputError):
    """An input is larger, deeper or more numerous than a limit allows. The message names the entry and the limit.

    Nothing of it was written. Where you trust the publisher, raise that limit under `limits` in the configuration, and
    import the package with `mailboat errors redrive`; otherwise publish it in smaller parts.
    """


class PathRefusedError(UntrustedInputError):
    """A path or name is not one that content may have, or it would lead outside its root."""


class ResourceInvalidError(UntrustedInputError):
    """A custom resource has a field that does not exist, or a value that can't be meant. Nothing was made of it.

    The message names the field and the reason; `kubectl explain` lists all fields. The API server refuses such objects
    by itself. That this one was stored means that the definitions it was checked by are older or newer than the
    operator: apply those that belong to it.
    """


class ValueRefusedError(UntrustedInputError):
    """A property value does not have the form that its type demands. The message names the type and the value."""


class RequestConflictError(UsageError):
    """The request id was used before for a different request. A request id stands for one request for ever."""


class ThrottledError(RetryableError):
    """The request was held back: subscribers lag too far behind, or this caller asks more than its share.

    Nothing was published. Try again after the time that the message says; over HTTP it is in `Retry-After`.
    `mailboat status` shows who lags, `publisher.throttle` in the configuration says where delays begin.
    """


class AgentMissingError(UsageError):
    """There is no agent of that name here. `mailboat status` lists publishers and subscribers."""


class DistributionMissingError(UsageError):
    """The log holds no package of that id: it was never published, or retention has removed it since.

    `mailboat journal show` lists what the log holds.
    """


class QueueNotClearableError(PermanentError):
    """The subscriber does not take commands, so its queue can't be cleared. Nothing was sent.

    Set `is_editable: true` for that subscriber in its agent's configuration and start it again; or let it give the
    package up by itself (`subscriber.max_retries`).
    """


class CommandMissingError(UsageError):
    """No command of that id is known: it was never sent, or so long ago that the log has forgotten it."""


class AccessDeniedError(PermanentError):
    """The agent does not know the token, or the token may not do this. Nothing was done, and no more is told.

    Name the token's file with `--token-file`, or put the token into MAILBOAT_TOKEN. What a token may do stands under
    `http.tokens` in the agent's configuration.
    """

    exit_code = 77  # EX_NOPERM of sysexits.h


class PathForbiddenError(AccessDeniedError):
    """A request names a path outside those that its token may distribute. The whole request was refused.

    Ask for paths that the token covers, or have `http.tokens[].paths` of the agent's configuration widened.
    """


class PortTakenError(UsageError):
    """The HTTP API can't listen on its address: the port is in use, or the host is not an address of this machine.

    Choose another `http.port` in the configuration, or 0 for any free port.
    """


class HttpStartFailedError(RetryableError):
    """The HTTP server of an agent did not begin to serve, so the agent was not started.

    Start the agent again. If the error stays, the log holds the cause.
    """


class ImportTimeoutError(RetryableError):
    """Importing one package took longer than the time allowed for it. It was rolled back and is tried again.

    When it stays, raise `package_timeout_seconds` in the configuration, or publish the content in smaller parts.
    """


class ProcessorFailedError(RetryableError):
    """A pre-processor hook refused or failed, so the package was not imported. It is tried again like any failure."""


class DemoFailedError(PermanentError):
    """A process of the demo ended, or stood still, where it should have gone on. Its last words are in the message.

    The demo's folder is kept: `mailboat --home DIR status` and `journal verify` can look into it.
    """


class KubectlFailedError(PermanentError):
    """What `kubectl mailboat` asked of kubectl failed; the message ends with its own words.

    It was called with the same kubeconfig and context, so `kubectl get publishers.mailboat.dev` fails in the same way.
    One who asks an agent needs the rights to get Publishers and the Secret of the token, and to create
    `pods/portforward`.
    """


# --------------------------------------------------------------------------------------------------- the operator


class ClusterUnavailableError(RetryableError):
    """The Kubernetes API did not answer, or has too much to do. The operator tries again by itself."""


class ClusterConflictError(RetryableError):
    """Somebody else changed or replaced the object meanwhile. The operator looks at it anew by itself."""


class ClusterRefusedError(PermanentError):
    """The Kubernetes API refused a request: the operator may not do it, or the object is not valid there.

    The message is the API's own. Look at the operator's ClusterRole, at quotas, and at admission policies.
    """


class OperatorDefectError(PermanentError):
    """Internal error in the operator while it reconciled an object. It tries again, less and less often.

    The operator's log has the trace under the object's name. Report it with the log and the object's spec.
    """


class AgentUnreachableError(RetryableError):
    """The agent at that URL did not answer, or not in time: it may be starting, stopping, or at another address.

    The request may have been executed. To publish again, use the same request id: a published package is found, and
    not published a second time.
    """


class AgentDefectError(PermanentError):
    """Internal error in the agent, or the server at that URL is not a Mailboat agent.

    Search the agent's log for the incident id: the log has the trace, which is never sent to callers.
    """


class QueueMissingError(UsageError):
    """The publisher has no queue of that name: the subscriber is unknown, silent for too long, or has no error queue.

    `mailboat queues ls` lists the queues.
    """


class BuildMissingError(UsageError):
    """The log holds no package of a build of that id: none was published yet, or retention has removed them since.

    `mailboat bulk status` lists the builds that the log holds.
    """


class AgentUnansweringError(RetryableError):
    """A publisher's agent did not answer, or does not take requests at the moment. The operator asks again by itself.

    Look at the Publisher's pod, at its Service, and at network policies between it and the operator.
    """


class AgentRefusedError(PermanentError):
    """A publisher's agent refused a request for the reason that the message gives; the same again is refused again."""


class BucketUnreachableError(RetryableError):
    """The S3 server did not answer, or has a fault. The operator asks again by itself.

    Look at `spec.blobs.s3.endpointUrl`, at `caSecretRef`, and at the network policy between operator and server.
    """


class BucketRefusedError(PermanentError):
    """The S3 server has no such bucket, or not for these credentials, or not in this region: the message says which."""


class BrokersUnreachableError(RetryableError):
    """The brokers did not answer, or not in time. The operator asks again by itself, less and less often.

    Look at `spec.kafka.bootstrapServers`, at the network policy between operator and brokers, and at the credentials.
    """


class BrokersRefusedError(PermanentError):
    """The brokers refused a request, for the reason that the message gives: a right that is missing, or a setting."""


class SecretMissingError(RetryableError):
    """A Secret that a Journal names is missing, or has no entry of a name that is needed.

    Make it beside the Journal, with the entry that the message names; the operator sees it within seconds.
    """


class SecretMalformedError(RetryableError):
    """What a Secret holds is not what it should be, such as a certificate in PEM. The message never quotes it."""
