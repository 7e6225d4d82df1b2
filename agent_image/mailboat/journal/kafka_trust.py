"""Why a broker's certificate is not trusted, in words: the client library says only that it is not.

A second handshake is made by Python's own TLS with the same settings, and only after the library was refused.
"""

from __future__ import annotations

import re
import socket
import ssl
from typing import Final

from mailboat.journal.kafka_settings import KafkaTls

_ADDRESS: Final = re.compile(r"ssl://\[?(?P<host>[^/\]]+?)\]?:(?P<port>\d+)/")


def distrust_reason(said: str, tls: KafkaTls, timeout_seconds: float) -> str | None:
    """The broker and what is wrong with its certificate, such as `one:9093: certificate has expired`.

    Args:
        said: The library's error, which names the broker.
        tls: How the brokers are reached.
        timeout_seconds: How long the broker may take to answer.

    Returns:
        None when it can't be found out, or when the broker is trusted by now.
    """
    place = _ADDRESS.search(said)
    if place is None:
        return None
    host, port = place["host"], int(place["port"])
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        context.check_hostname = tls.verify_hostname
        # set by Python 3.13 and newer, never by the library: it would report what the library does not mind
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        with (
            socket.create_connection((host, port), timeout_seconds) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return f"{host}:{port}: {error.verify_message}"
    except OSError:
        return None
