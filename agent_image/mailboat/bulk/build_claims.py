"""One driver for each build and each source: claims next to the manifests, renewed by their owner, respected by others.

A claim is a document that one of several can create, with a number. A driver that finds the newest claim dead (its
process is gone from this machine, or it was not renewed for a while) creates the next number; of a claim of another
machine a driver waits to see whether it is renewed. The owner looks, every few seconds, whether a newer one is there,
and stops before its next package: a driver that was frozen can't go on. Between a look and an append there is an
instant; what slips through is the same package with the same request id, and changes nothing at subscribers.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from mailboat.blobs.port import NamedDocuments
from mailboat.bulk.build_records import Count, Recipe
from mailboat.clock import Clock, milliseconds_now
from mailboat.errors import MailboatError, RetryableError, StopError
from mailboat.json_decoder import decoder_of
from mailboat.model.identifiers import BuildId

LEASE_SECONDS: Final = 60.0
POLL_SECONDS: Final = 5.0
# in each lease: three in a row may fail before the claim counts as dead
_RENEWALS: Final = 4
_DIGITS: Final = 6
"""Of a claim's number: so the order of names is that of numbers."""


class BuildBusyError(RetryableError):
    """Another driver works on this build, or on another build of the same paths. This one did nothing.

    Wait until it is done (`mailboat bulk status`); the lease of a dead driver expires within a minute.
    """


class BuildLostError(StopError):
    """This driver missed its lease for a minute, and another one took over the build.

    No action is needed: the other driver continues (`mailboat bulk status`).
    """


@dataclass(frozen=True, slots=True)
class BuildDriver:
    """The driver that claims a build.

    Attributes:
        token: Its own.
        host: The machine, or the pod.
        pid: Its process.
        started: When the process began, by its kernel: a process id may be used again.
        renewed_ms: When it was last renewed.
    """

    token: str
    host: str
    pid: Count
    started: str
    renewed_ms: Count = 0


def this_driver() -> BuildDriver:
    """This process."""
    return BuildDriver(uuid.uuid4().hex, socket.gethostname(), os.getpid(), _started(os.getpid()))


def is_alive(claim: BuildDriver, here: BuildDriver, now_ms: int, started: str) -> bool:
    """Whether the owner of a claim may still be at work; `started` is of the process of its id on this machine."""
    if claim.host == here.host and claim.started != started:
        return False
    return now_ms - claim.renewed_ms < LEASE_SECONDS * 1000


class ClaimSubject(NamedTuple):
    """What a driver claims: names of claims begin with `name`, `description` is for people, `build_id` if it is one."""

    name: str
    description: str
    build_id: BuildId | None = None


def claimed_build(build_id: BuildId) -> ClaimSubject:
    """One build: no other driver builds, publishes or forgets it."""
    return ClaimSubject(build_id, f"the build {build_id}", build_id)


def claimed_source(recipe: Recipe) -> ClaimSubject:
    """All builds of the same of a source: what one finds to be present, no other one may change meanwhile.

    Roots count: builds of different paths of a source need not wait for each other.
    """
    digest = hashlib.sha256(json.dumps(recipe.subject).encode()).hexdigest()
    return ClaimSubject(f"source-{digest[:24]}", f"a build of {recipe.source}")


class BuildClaim:
    """The claim of this process on one build, or on all builds of one source."""

    def __init__(self, documents: NamedDocuments, claimed: ClaimSubject, driver: BuildDriver, clock: Clock) -> None:
        """Claim nothing yet."""
        self._documents = documents
        self._claimed = claimed
        self._prefix = f"{claimed.name}.claim-"
        self._driver = driver
        self._clock = clock
        self._name = ""
        self._checked_at = 0.0
        self._failure: Exception | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Own it, and renew the claim in the background. Raises: BuildBusyError."""
        self._take()
        over = threading.Event()
        renewing = threading.Thread(target=self._renew_until, args=(over,), name="bulk-claim", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            over.set()
            # a renewal that ran after the release would create the claim again
            renewing.join()
            self._release()

    def check(self) -> None:
        """Check, every few seconds, that no other driver took it over.

        Raises:
            BuildLostError: Another driver did.
            Exception: The thread that renews the claim ended by a defect, so the claim will be free soon.
        """
        if self._failure is not None:
            raise self._failure
        now = self._clock.monotonic()
        if now - self._checked_at < POLL_SECONDS:
            return
        self._checked_at = now
        if not self._is_mine():
            raise BuildLostError(f"another driver took over {self._claimed.description}", build=self._claimed.build_id)

    def _take(self) -> None:
        names = self._dead_claims()
        number = int(names[-1].removeprefix(self._prefix)) + 1 if names else 1
        self._name = f"{self._prefix}{number:0{_DIGITS}d}"
        mine = replace(self._driver, renewed_ms=milliseconds_now(self._clock))
        # False of an own claim: the answer of an earlier attempt at this request was lost
        if not self._documents.create(self._name, msgspec.json.encode(mine)) and not self._is_mine():
            raise self._busy(None)
        # removed after the new one exists: with no claim at all the numbers would begin at 1 again
        for name in names:
            self._documents.remove(name)
        self._checked_at = self._clock.monotonic()

    def _dead_claims(self) -> list[str]:
        """The existing claims, once the newest is dead: so one attempt after a driver's death is enough.

        Raises: BuildBusyError, as soon as its owner renews it.
        """
        seen: tuple[str, int] | None = None
        end = self._clock.monotonic() + LEASE_SECONDS  # whatever the other machine's clock says
        while names := self._names():
            found = _decoded(self._documents.read(names[-1]))
            if found is None or not is_alive(found, self._driver, milliseconds_now(self._clock), _started(found.pid)):
                return names
            if found.host != self._driver.host and self._clock.monotonic() >= end:
                return names
            # alive here, as its process runs; alive elsewhere, as it renewed its claim while this driver looked
            if found.host == self._driver.host or seen not in {None, (names[-1], found.renewed_ms)}:
                raise self._busy(found)
            seen = names[-1], found.renewed_ms
            self._clock.wait(threading.Event(), POLL_SECONDS)
        return []

    def _names(self) -> list[str]:
        """The existing claims, the newest last; names without a number behind the prefix are skipped."""
        names = [(name, name.removeprefix(self._prefix)) for name in self._documents.names(self._prefix)]
        return [name for name, number in names if len(number) == _DIGITS and number.isascii() and number.isdecimal()]

    def _busy(self, by: BuildDriver | None) -> BuildBusyError:
        where = "" if by is None else f", process {by.pid} on {by.host},"
        return BuildBusyError(
            f"another driver{where} is at work on {self._claimed.description}",
            retry_after_seconds=LEASE_SECONDS,
            next_step="mailboat bulk status",
            build=self._claimed.build_id,
        )

    def _is_mine(self) -> bool:
        names = self._names()
        found = _decoded(self._documents.read(names[-1])) if names else None
        return found is not None and found.token == self._driver.token

    def _renew_until(self, over: threading.Event) -> None:
        while not over.wait(LEASE_SECONDS / _RENEWALS):
            try:
                if self._is_mine():
                    mine = replace(self._driver, renewed_ms=milliseconds_now(self._clock))
                    # writes its own number only: a newer claim of another driver stays the newest
                    self._documents.write(self._name, msgspec.json.encode(mine))
            except MailboatError:
                continue  # the next renewal is tried before the lease is over
            except Exception as error:  # noqa: BLE001  # `check` raises it, in the thread that builds
                self._failure = error
                return

    def _release(self) -> None:
        if self._is_mine():
            self._documents.remove(self._name)


def _decoded(document: bytes | None) -> BuildDriver | None:
    """The claim in a document; None where it is missing or can't be decoded, and so is not renewed."""
    try:
        return None if document is None else decoder_of(BuildDriver).decode(document)
    except (ValueError, RecursionError):
        return None


def _started(pid: int) -> str:
    """When a process of this machine began, in clock ticks; empty if absent."""
    try:
        # field 22 is the start time; the name in field 2 may contain spaces and parentheses, so count from the last one
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
