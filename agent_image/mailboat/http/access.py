"""Authorization: bearer tokens with verbs and paths, compared in constant time and kept as digests only.

A token's file is read again when it changes, so tokens are rotated by writing the file. Without tokens the API listens
at a loopback address only, and browsers are kept out by the `Host` and `Origin` that they send. Called by `gate.py`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mailboat.clock import Clock, SystemClock
from mailboat.composition.credentials import read_secret
from mailboat.composition.environment import expanded_path
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.document import HttpConfig, TokenConfig, Verb
from mailboat.errors import PathForbiddenError, PathRefusedError
from mailboat.model.path_patterns import EVERYWHERE, PathPattern, first_uncovered
from mailboat.model.paths import parse_path

_LOG: Final = logging.getLogger("mailboat.http")
_LOOK_SECONDS: Final = 1.0
"""How often the token files are checked, at most."""

ALL_VERBS: Final = frozenset(Verb)
LOCAL_CALLER: Final = "local"
"""Caller name in audit lines of an agent without tokens."""


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller: the token's name, its verbs, and the paths that it may distribute."""

    name: str
    verbs: frozenset[Verb]
    is_known: bool = True
    paths: tuple[PathPattern, ...] = EVERYWHERE

    def may(self, verb: Verb) -> bool:
        """Whether the verb is allowed; `admin` allows all."""
        return verb in self.verbs or Verb.ADMIN in self.verbs

    def check_paths(self, paths: Iterable[str]) -> None:
        """Refuse paths that the token does not cover.

        Raises:
            PathRefusedError: A path is malformed.
            PathForbiddenError: One is not covered. A covered path covers all that lies below it.
        """
        outside = first_uncovered(map(parse_path, paths), self.paths)
        if outside is not None:
            raise PathForbiddenError(f"the token {self.name} may not distribute {outside}", path=outside)


LOCAL: Final = Caller(LOCAL_CALLER, ALL_VERBS, is_known=False)


class TokenBook:
    """The tokens of an agent. Used from the server's thread only."""

    def __init__(self, tokens: Sequence[TokenConfig], folder: Path, clock: Clock) -> None:
        """Read all tokens; relative files are relative to `folder`.

        Raises:
            ConfigInvalidError: A token is missing or no header can carry it, or two entries hold the same one, so the
                caller would be ambiguous.
        """
        self._tokens = tokens
        self._folder = folder
        self._clock = clock
        self._looked = clock.monotonic()
        # before the files are read: one that changes meanwhile has another stamp at the next look, and is read again
        self._stamps = self._file_stamps()
        self._digests = [self._digest_of(number) for number in range(len(tokens))]
        self._callers = self._callers_of(self._digests)

    @property
    def is_empty(self) -> bool:
        """Whether requests need no token."""
        return not self._tokens

    def caller_of(self, token: str) -> Caller | None:
        """Return the holder of a token."""
        self._read_again()
        offered = hashlib.sha256(token.encode()).digest()
        found = None
        # all are compared, and each in constant time: the time of an answer reveals nothing about the tokens
        for digest, caller in self._callers.items():
            if hmac.compare_digest(digest, offered):
                found = caller
        return found

    def _read_again(self) -> None:
        """Take over what files hold now. One that can't be read leaves its token as it was, and stops no other."""
        if self._clock.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = self._clock.monotonic()
        stamps = self._file_stamps()
        if stamps == self._stamps:
            return
        digests, mistakes = list(self._digests), list[ConfigInvalidError]()
        for number in range(len(digests)):
            try:
                digests[number] = self._digest_of(number)
            except ConfigInvalidError as error:
                mistakes.append(error)
        try:
            self._callers, self._digests = self._callers_of(digests), digests
        except ConfigInvalidError as error:
            mistakes.append(error)
        for mistake in mistakes:
            _LOG.warning("a token stays as it is: %s", mistake)
        # else the stamps stay old: the next look tries again, also where only the file's permissions change
        if not mistakes:
            self._stamps = stamps
            _LOG.info("tokens were read again")

    def _digest_of(self, number: int) -> bytes:
        key = f"http.tokens[{number}].token"
        token = read_secret(self._tokens[number].token, key, self._folder)
        # a blank line at the end of a file, for example: no request could ever match
        if not token.isprintable() or token != token.strip():
            raise ConfigInvalidError(
                f"{key} is not a token: it has a control character, or a space at an end",
                next_step="write the token alone into its file; one newline may follow",
                key=key,
            )
        return hashlib.sha256(token.encode()).digest()

    def _callers_of(self, digests: Sequence[bytes]) -> dict[bytes, Caller]:
        found: dict[bytes, Caller] = {}
        for number, (one, digest) in enumerate(zip(self._tokens, digests, strict=True)):
            if digest in found:
                raise ConfigInvalidError(f"http.tokens: {found[digest].name} and {one.name} are the same token")
            found[digest] = Caller(one.name, frozenset(one.verbs), paths=_patterns_of(one, f"http.tokens[{number}]"))
        return found

    def _file_stamps(self) -> list[tuple[int, int, int] | None]:
        files = [token.token.file for token in self._tokens if token.token.file is not None]
        return [_stamp(self._folder / expanded_path(file)) for file in files]


def _patterns_of(token: TokenConfig, key: str) -> tuple[PathPattern, ...]:
    """The checked paths of a token.

    Raises:
        ConfigInvalidError: One is not a pattern, or a verb is given that paths can't limit.
    """
    # clearing drops all earlier items of a queue, and a re-drive takes packages by offset: both cross others' paths
    unlimited = sorted({*token.verbs} - {Verb.VIEW, Verb.DISTRIBUTE})
    if token.paths != TokenConfig.paths and unlimited:
        raise ConfigInvalidError(
            f"{key}: paths can't limit the verb {unlimited[0]}, which concerns packages of all paths",
            next_step="remove the verb or the paths; paths limit what `distribute` may publish",
            key=f"{key}.paths",
        )
    try:
        return tuple(map(PathPattern, token.paths))
    except PathRefusedError as error:
        message = f"{key}.paths: {error.message}"
        raise ConfigInvalidError(message, next_step=error.next_step, key=f"{key}.paths") from error


def token_of(authorization: str) -> str | None:
    """The token of an `Authorization` header: bearer, or basic authentication's password.

    Sling's recipes use basic authentication; the user name is ignored.
    """
    scheme, _, rest = authorization.strip().partition(" ")
    if scheme.lower() == "bearer":
        return _utf8(rest.strip()) or None
    if scheme.lower() == "basic":
        try:
            decoded = base64.b64decode(rest.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None
        return decoded.partition(":")[2] or None
    return None


def _utf8(text: str) -> str:
    """The text of a header, which comes as Latin-1; as it is where its bytes are not UTF-8."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text


def check_access(config: HttpConfig, folder: Path) -> None:
    """Refuse what `create_app` and the server would refuse, before anything is started.

    Raises: ConfigInvalidError, as `check_exposure` and `TokenBook`.
    """
    check_exposure(config)
    TokenBook(config.tokens, folder, SystemClock())


def check_exposure(config: HttpConfig) -> None:
    """Refuse to serve others without tokens. Raises: ConfigInvalidError."""
    if config.tokens or is_loopback(config.host):
        return
    raise ConfigInvalidError(
        f"http.host is {config.host}, which others can reach, but there are no http.tokens",
        next_step="name tokens under http.tokens, or listen at 127.0.0.1",
        key="http.host",
    )


def is_loopback(host: str) -> bool:
    """Whether a host name or address is a loopback address of this machine."""
    bare = host.strip("[]").lower()
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def is_from_here(host_header: str, origin: str | None) -> bool:
    """Whether a request without a token is of this machine, and not of a page in a browser."""
    # a page can let its own name lead to 127.0.0.1 (DNS rebinding): then `Host` has that name
    if not is_loopback(_host_of(host_header)):
        return False
    # a page elsewhere can make the browser call 127.0.0.1: then `Origin` has that page
    return origin is None or origin.removeprefix("http://") == host_header


def is_cross_site(sec_fetch_site: str | None) -> bool:
    """Whether a page of another origin made the request, by a header that only browsers send."""
    return sec_fetch_site not in {None, "same-origin", "none"}


def _host_of(header: str) -> str:
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.partition(":")[0]


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
