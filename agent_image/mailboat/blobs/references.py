"""References to packages in a blob store, as text that fits the wire's `pkgBinaryRef`.

Form: `sha256:<64 hex digits>:<length>`, and between parties that share a key `:<64 hex digits>` more, the HMAC-SHA256
of the text before it. A reference is a key, never an address: it can't lead a reader to another store. The signature
keeps someone who may only append to the journal from naming blobs that no publisher put there.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final, NamedTuple

from mailboat.blobs.port import Digest
from mailboat.errors import UntrustedInputError, UsageError

_FORM: Final = re.compile(r"sha256:([0-9a-f]{64}):(0|[1-9][0-9]{0,17})(?::([0-9a-f]{64}))?", re.ASCII)
_SHOWN: Final = 100  # of a refused reference
# 128 bits: a shorter key of HMAC could be guessed from one signed reference.
_SMALLEST_KEY_BYTES: Final = 16


class ReferenceRefusedError(UntrustedInputError):
    """A package's reference to a blob is malformed, so the blob was not fetched and nothing was written.

    Find its publisher with `mailboat errors show`, and publish the paths again with a Mailboat publisher.
    """


class BlobReference(NamedTuple):
    """Which blob, and how long it is."""

    digest: Digest
    length_bytes: int

    def __str__(self) -> str:
        return f"sha256:{self.digest.hex()}:{self.length_bytes}"


class ReferenceCodec:
    """Writes and reads references. With a key all are signed, and all that are read must be."""

    def __init__(self, key: bytes | None = None) -> None:
        """Use the shared `key`, or none. Raises: UsageError when the key has less than 16 bytes."""
        if key is not None and len(key) < _SMALLEST_KEY_BYTES:
            raise UsageError(f"a signing key needs {_SMALLEST_KEY_BYTES} bytes or more, this one has {len(key)}")
        self._key = key

    def format(self, reference: BlobReference) -> str:
        """The text of a reference."""
        text = str(reference)
        return text if self._key is None else f"{text}:{self._sign(text, self._key)}"

    def parse(self, text: str) -> BlobReference:
        """The reference that a text stands for.

        A signature is ignored when there is no key to check it with.

        Raises:
            ReferenceRefusedError: Malformed, unsigned though there is a key, or signed with another key.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise ReferenceRefusedError(f"{text[:_SHOWN]!r} is not a blob reference")
        reference = BlobReference(bytes.fromhex(match[1]), int(match[2]))
        if self._key is not None:
            signature: str | None = match[3]
            if signature is None:
                raise ReferenceRefusedError(f"the reference {reference} is not signed")
            if not hmac.compare_digest(signature, self._sign(str(reference), self._key)):
                raise ReferenceRefusedError(f"the signature of the reference {reference} is wrong")
        return reference

    @staticmethod
    def _sign(text: str, key: bytes) -> str:
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
