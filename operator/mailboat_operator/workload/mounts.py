"""Where a pod's agent finds its configuration and its Secrets; the configuration's text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mailboat.config.decoder import encode_changes
from mailboat.config.document import Config
from mailboat.config.storage import Secret

from mailboat_operator.definition.forms import LABEL
from mailboat_operator.definition.metadata import Reference
from mailboat_operator.plan.child_manifest import digest_of
from mailboat_operator.plan.labels import TOKEN_KEY
from mailboat_operator.workload.template import AGENT_PORT

CONFIG_ENDING: Final = "config"
CONFIG_FOLDER: Final = "/etc/mailboat"
CONFIG_FILE: Final = "mailboat.yaml"
SECRETS_FOLDER: Final = "/run/mailboat"
HOME_FOLDER: Final = "/var/lib/mailboat"
HTTP_PORT: Final = AGENT_PORT
_READ_ONLY_FILES: Final = 0o440


def service_url(name: str, namespace: str) -> str:
    """The URL of a Service of agents, within the cluster."""
    return f"http://{name}.{namespace}.svc:{HTTP_PORT}"


class SecretMount(NamedTuple):
    """A Secret that a pod mounts.

    Attributes:
        folder: Name of the folder below `SECRETS_FOLDER`, and of the volume.
        secret: Name of the Secret.
        keys: The entries that appear as files, and no others.
    """

    folder: str
    secret: str
    keys: tuple[str, ...]

    def file(self, key: str) -> str:
        """Where an entry is found."""
        return f"{SECRETS_FOLDER}/{self.folder}/{key}"

    @property
    def volume(self) -> Mapping[str, Any]:
        """The Secret as a volume of a pod, with the entries that are needed."""
        items = [{"key": key, "path": key} for key in self.keys]
        secret = {"secretName": self.secret, "items": items, "defaultMode": _READ_ONLY_FILES}
        return {"name": self.folder, "secret": secret}

    @property
    def volume_mount(self) -> Mapping[str, Any]:
        """That volume in a container."""
        return {"name": self.folder, "mountPath": f"{SECRETS_FOLDER}/{self.folder}", "readOnly": True}


def secret_folder(name: str) -> str:
    """The folder for a Secret, and its volume: the name, or a digest where no volume can have that name."""
    # tokens are named after callers, such as jane.doe; a volume's name is a label of at most 63 characters
    is_label = len(name) <= LABEL.max_length and re.fullmatch(LABEL.pattern, name)
    return name if is_label else f"secret-{digest_of(name)}"


def secret_mount(name: str, reference: Reference | None, *keys: str) -> SecretMount | None:
    """The entries of a Secret that an object may name; None if it names none."""
    return None if reference is None else SecretMount(secret_folder(name), reference.name, keys)


def mounted_file(mount: SecretMount | None, key: str) -> str | None:
    """Where an entry is found; None without a Secret."""
    return None if mount is None else mount.file(key)


def mounted_secret(mount: SecretMount | None, key: str) -> Secret | None:
    """An entry as the agent's configuration names it; None without a Secret."""
    return None if mount is None else Secret(file=mount.file(key))


def token_mount(secret: str) -> SecretMount:
    """The Secret with the token of the HTTP API."""
    return SecretMount("http", secret, (TOKEN_KEY,))


def config_text(config: Config) -> str:
    """The document as it is mounted: JSON, which is YAML, with the keys that differ from the defaults."""
    document: Mapping[str, Any] = encode_changes(config)
    return json.dumps(document, indent=2, sort_keys=True) + "\n"
