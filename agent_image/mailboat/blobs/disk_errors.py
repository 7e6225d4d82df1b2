"""Maps the operating system's disk errors to errors of the port, and keeps those of the caller's stream apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mailboat.blobs.checked_content import CHUNK_BYTES
from mailboat.errors import BlobStoreCorruptError, RetryableError, StorageFullError, StorageReadOnlyError
from mailboat.faults import Fault, fault_of
from mailboat.folder_handle import ForeignEntryError


@contextmanager
def mapped_disk_errors(place: Path | str) -> Iterator[None]:
    """Turn what the operating system raises about `place` into ours; what `read_chunk` met goes through as it was.

    Raises: StorageFullError, StorageReadOnlyError, BlobStoreCorruptError, RetryableError.
    """
    try:
        yield
    except _SourceBrokenError as broken:
        raise broken.error from broken.error.__cause__
    # before OSError, its parent class: a link in the store is damage, which a retry does not repair
    except ForeignEntryError as error:
        raise BlobStoreCorruptError(
            f"{error.filename} {error.strerror} of the blob store; it was not used",
            next_step=f"remove {error.filename}; a blob that is missing then can be published again",
        ) from error
    except OSError as error:
        fault = fault_of(error)
        if fault is Fault.FULL:
            raise StorageFullError(f"no space is left for blobs in {place}", path=place) from error
        if fault is Fault.READ_ONLY:
            raise StorageReadOnlyError(f"blobs can't be written to {place}: {error.strerror}", path=place) from error
        raise RetryableError(f"{place} can't be used for blobs: {error}", path=place) from error


def read_chunk(content: BinaryIO) -> bytes:
    """The next piece of the caller's stream. What goes wrong there is the caller's, not the store's."""
    try:
        return content.read(CHUNK_BYTES)
    except OSError as error:
        raise _SourceBrokenError(error) from error


class _SourceBrokenError(Exception):
    """Carries what the caller's own stream raised past the mapping of our errors."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error
