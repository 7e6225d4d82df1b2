"""A server that gives OAuth tokens on the loopback address, for tests of OAUTHBEARER.

It knows one kind of request, client credentials, and signs what brokers check with the keys in `jwks_file`. Needs the
package `cryptography`.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from mailboat.clock import Clock

_KEY_ID: Final = "test"
_VALID_SECONDS: Final = 300
ISSUER: Final = "mailboat-tests"
AUDIENCE: Final = "kafka"


class TokenServer:
    """Gives tokens to clients by their secrets."""

    def __init__(self, folder: Path, clients: Mapping[str, str], clock: Clock) -> None:
        """Listen at a free port; `clients` is client id → secret. Use it as a context manager."""
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._clients = clients
        self._clock = clock
        self.jwks_file = folder / "jwks.json"
        self.jwks_file.write_text(json.dumps({"keys": [self._public_key()]}))
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                status, document = server.answer(self.headers.get("Authorization", ""))
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """Where tokens are given."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/token"

    def answer(self, authorization: str) -> tuple[int, dict[str, Any]]:
        """Status and document for a request with that header."""
        kind, _, encoded = authorization.partition(" ")
        client, _, secret = base64.b64decode(encoded).decode().partition(":") if kind == "Basic" else ("", "", "")
        if not client or self._clients.get(client) != secret:
            return 401, {"error": "invalid_client", "error_description": "nobody of that name"}
        return 200, {"access_token": self.token(client), "token_type": "Bearer", "expires_in": _VALID_SECONDS}

    def token(self, subject: str) -> str:
        """A signed token."""
        now = int(self._clock.now().timestamp())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "iat": now, "exp": now + _VALID_SECONDS}
        signed = f"{_encoded({'alg': 'RS256', 'typ': 'JWT', 'kid': _KEY_ID})}.{_encoded(claims)}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64(signature)}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _public_key(self) -> dict[str, str]:
        numbers = self._key.public_key().public_numbers()
        parts = {"n": numbers.n, "e": numbers.e}
        encoded = {name: _base64(one.to_bytes((one.bit_length() + 7) // 8, "big")) for name, one in parts.items()}
        return {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": _KEY_ID, **encoded}


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _encoded(document: Mapping[str, object]) -> str:
    return _base64(json.dumps(document).encode())
