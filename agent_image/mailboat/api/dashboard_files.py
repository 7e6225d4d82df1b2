"""The files of the dashboard, and the headers that the servers of agents and of the operator send with them.

The files hold no data: the page asks the API for that with a token. The policy lets the page run its own scripts only,
and make HTML of no text (Trusted Types), so what a stranger wrote into a path or an error stays text.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from mailboat.api.confirmations import confirmations_module

_FOLDER: Final = Path(__file__).with_name("dashboard")
_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".json": "application/json"}
# All that the files need, of agents and of the operator. `http/reference.py` has the policy of the API's own page.
_HEADERS: Final = MappingProxyType(
    {
        # a page of the version before would not fit the API after an upgrade
        "Cache-Control": "no-store",
        "Content-Security-Policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
            "form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"
        ),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
)

_CONFIRMATIONS: Final = "/dashboard/confirmations.js"
_FILES: Final = MappingProxyType(
    {"/" if file.name == "index.html" else f"/dashboard/{file.name}": file for file in sorted(_FOLDER.iterdir())}
)
DASHBOARD_PATHS: Final = (*_FILES, _CONFIRMATIONS)
"""What is served: the files, and the texts that dialogs share with the command line, as a script."""


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an `Accept-Encoding` allows gzip; the weight 0 refuses it (RFC 9110, 12.5.3)."""
    for item in accept_encoding.lower().split(","):
        name, _, weight = "".join(item.split()).partition(";q=")
        if name == "gzip":
            return weight == "" or weight.strip("0.") != ""
    return False


def dashboard_answer(path: str, accept_encoding: str) -> tuple[bytes, dict[str, str], str]:
    """Body, headers and media type of the file at one of the paths."""
    is_packed = accepts_gzip(accept_encoding)
    headers = {**_HEADERS, "Content-Encoding": "gzip"} if is_packed else dict(_HEADERS)
    return _content(path, is_packed=is_packed), headers, _TYPES[PurePosixPath(path).suffix or ".html"]


@cache
def _content(path: str, *, is_packed: bool) -> bytes:
    """The bytes to send; they do not change while the process runs."""
    data = confirmations_module() if path == _CONFIRMATIONS else _FILES[path].read_bytes()
    return gzip.compress(data, mtime=0) if is_packed else data
