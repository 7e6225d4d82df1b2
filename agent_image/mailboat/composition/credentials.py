"""Secrets of the configuration: read where the document says they are, and kept nowhere else.

A secret is a reference in the document, so the document can be shown, stored and compared. What is read here goes to
the one client that needs it; messages name the key and the place, never the value. Called by the composition.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mailboat.composition.environment import expanded_path, variable
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.storage import Secret

_LARGEST_BYTES: Final = 64 * 1024  # a bearer token may be long, a file of this size is another file


def read_secret(secret: Secret, key: str, folder: Path) -> str:
    """The secret itself.

    Args:
        secret: Where it is.
        key: The key of the configuration that refers to it, such as `journal.kafka.sasl.password`, for messages.
        folder: What a relative file is relative to: the home.

    Raises:
        ConfigInvalidError: Not exactly one place is named, or there is nothing at that place.
    """
    if (secret.file is None) is (secret.env is None):
        raise ConfigInvalidError(f"{key} names its secret by either `file` or `env`", key=key)
    if secret.env is not None:
        found = variable(secret.env)
        place = f"the variable {secret.env} of the environment"
    else:
        file = folder / expanded_path(str(secret.file))
        found, place = _text_of(file, key), f"the file {file}"
    if not found:
        raise ConfigInvalidError(f"{key} refers to {place}, which holds nothing", key=key)
    return found


def _text_of(file: Path, key: str) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise ConfigInvalidError(
            f"{key} refers to the file {file}, which can't be read: {error.strerror}", key=key
        ) from error
    if len(data) > _LARGEST_BYTES:
        raise ConfigInvalidError(f"{key} refers to the file {file}, which is too large for a secret", key=key)
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ConfigInvalidError(f"{key} refers to the file {file}, which is not UTF-8", key=key) from error
