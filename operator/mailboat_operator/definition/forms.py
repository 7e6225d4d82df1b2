"""The forms that texts of manifests have: names, durations, sizes, addresses.

Patterns are anchored at both ends and of the common part of RE2 and Python, since the API server and the decoder apply
the same ones. Lengths are short enough for the cost that the API server allows a rule.
"""

from __future__ import annotations

from typing import Final

from mailboat.errors import PathRefusedError
from mailboat.model.paths import parse_path

from mailboat_operator.definition.amounts import (
    AGENT_SIZE_PATTERN,
    DURATION_OF_SECONDS_PATTERN,
    DURATION_OR_ZERO_PATTERN,
    DURATION_PATTERN,
    RETENTION_PATTERN,
    SIZE_PATTERN,
    format_duration,
    format_seconds,
    format_size,
    parse_duration,
    parse_size,
)
from mailboat_operator.definition.fields import Form

_PORT: Final = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_LABEL: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"

NAME: Final = Form(
    f"^{_LABEL}(\\.{_LABEL}){{0,10}}$", "a name in the same namespace: lower case letters, digits, '-' and '.'", 253
)
LABEL: Final = Form(f"^{_LABEL}$", "1 to 63 lower case letters, digits or '-', no '-' at the ends", 63)
AGENT_NAME: Final = Form(
    "^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
    "an agent's name: 1 to 63 letters, digits, '.', '_' or '-', a letter or digit at the ends",
    63,
)
DURATION: Final = Form(
    DURATION_PATTERN,
    "a positive duration, at most 31 years, such as 500ms, 30s, 15m, 12h or 7d",
    9,
    parse_duration,
    format_duration,
    "_seconds",
)
DURATION_OF_SECONDS: Final = Form(
    DURATION_OF_SECONDS_PATTERN,
    "a duration of at least 1s, at most 31 years, such as 30s, 15m, 12h or 7d",
    9,
    parse_duration,
    format_duration,
    "_seconds",
)
DURATION_OR_ZERO: Final = Form(
    DURATION_OR_ZERO_PATTERN,
    "a duration such as 0s, 500ms, 30s, 15m, 12h or 7d, not negative, at most 31 years",
    9,
    parse_duration,
    format_duration,
    "_seconds",
)
RETENTION: Final = Form(
    RETENTION_PATTERN,
    "a duration of at least 1s, such as 90m, 12h or 7d",
    9,
    parse_duration,
    format_duration,
    "_seconds",
)
DRAIN: Final = Form(
    r"^(0s|[1-9][0-9]{0,2}s)$", "whole seconds up to 999s", 4, parse_duration, format_seconds, "_seconds"
)
SCALE_DOWN: Final = Form(
    r"^(0s|([1-9][0-9]{0,2}|[12][0-9]{3}|3[0-5][0-9]{2}|3600)s|([1-9]|[1-5][0-9]|60)m|1h)$",
    "whole seconds or minutes of at most 1h, the longest that Kubernetes takes",
    5,
    parse_duration,
    format_duration,
    "_seconds",
)
REQUEST: Final = Form(
    "^([1-9][0-9]{2,4}ms|([1-9][0-9]?|1[0-9]{2}|2[0-3][0-9]|240)s|[1-4]m)$",
    "a duration of 100ms to 4m, such as 500ms, 30s or 2m",
    7,
    parse_duration,
    format_duration,
    "_seconds",
)
SIZE: Final = Form(SIZE_PATTERN, "a positive size such as 500Mi or 5Gi", 14, parse_size, format_size, "_bytes")
AGENT_SIZE: Final = Form(
    AGENT_SIZE_PATTERN, "a positive size, below 1000Ti, such as 500Mi or 5Gi", 14, parse_size, format_size, "_bytes"
)
CPU: Final = Form(r"^([1-9][0-9]{0,5}m|[1-9][0-9]{0,3}(\.[0-9]{1,3})?|0\.[0-9]{1,3})$", "CPU: 250m or 2", 8)
BROKER: Final = Form(
    r"^([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):" + _PORT + "$",
    "host:port of a broker, with a port of 1 to 65535",
    261,
)
HOST_NAME: Final = Form(
    r"^([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45})$", "a host name or an address", 253
)
MAIL_ADDRESS: Final = Form(
    r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,190}$", "a mail address such as ops@example.org", 255
)
NAME_PATTERN: Final = Form(r"^[A-Za-z0-9._*?-]{1,63}$", "a name with '*' for any characters, such as edge-*", 63)
URL: Final = Form(
    r"^https?://([A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(:"
    + _PORT
    + r")?(/[^\s?#]{0,700})?$",
    "an http or https URL with a host name or address, a port of 1 to 65535 if any, and without user and query",
    1000,
)
TOPIC_NAME: Final = Form(
    r"^([A-Za-z0-9-][A-Za-z0-9._-]{0,248}|_[A-Za-z0-9.-][A-Za-z0-9._-]{0,247}|\.[A-Za-z0-9_-][A-Za-z0-9._-]{0,247})$",
    "a topic's name: 1 to 249 letters, digits, '.', '_' or '-', not beginning with '__' as internal topics do",
    249,
)
TOPIC_PREFIX: Final = Form(
    r"^([A-Za-z0-9-][A-Za-z0-9._-]{0,99}|_([A-Za-z0-9.-][A-Za-z0-9._-]{0,98})?)$",
    "at most 100 letters, digits, '.', '_' or '-', not beginning with '__' as internal topics do",
    100,
)
TOPIC_CONFIG_KEY: Final = Form(r"^[a-z][a-z0-9.]{0,99}$", "a topic configuration's name, such as segment.bytes", 100)
BUCKET: Final = Form(
    r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", "a bucket's name: lower case letters, digits, '.' or '-'", 63
)
KEY_PREFIX: Final = Form(
    r"^([A-Za-z0-9_.=-]{1,100}/){0,10}[A-Za-z0-9_.=-]{0,100}$",
    "names with '/' between them",
    512,
)
CONTENT_PATH: Final = Form(
    r"^/([^\x00-\x1f\x7f\\]*[^\x00-\x1f\x7f\\/])?$", "an absolute path without '/' at its end", 4096
)
PATH_PATTERN: Final = Form(
    r"^/$|^(/([^\x00-\x1f\x7f\\/*]+(\*[^\x00-\x1f\x7f\\/*]*)?|\*[^\x00-\x1f\x7f\\/*]*))+$",
    "an absolute path without '/' at its end, with one '*' in a name at most",
    512,
)
FOLDER: Final = Form(
    r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}){0,10}$",
    "a relative folder: no '/' at its start, no name that begins with '.'",
    512,
)
MOUNT_PATH: Final = Form(r"^(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}){1,10}$", "an absolute path", 512)
IMAGE: Final = Form(r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,510}$", "an image's name", 511)
VARIABLE: Final = Form(r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", "a variable's name", 128)
LABEL_KEY: Final = Form(
    r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$", "a label's name", 317
)
_JOB_NAME: Final = "[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
JOB_TOPIC: Final = Form(
    rf"^{_JOB_NAME}(\.{_JOB_NAME}){{0,9}}$", "a job topic: 1 to 10 names joined by dots, such as purge.cdn", 650
)
JOB_PATTERN: Final = Form(
    rf"^(\*\*|({_JOB_NAME}|\*)(\.({_JOB_NAME}|\*)){{0,8}}(\.\*\*)?)$",
    "a pattern of job topics: names, '*' or a last '**', such as purge.*",
    650,
)
PYTHON_MODULE: Final = Form(
    r"^[A-Za-z_][A-Za-z0-9_]{0,63}(\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,9}$", "the name of a Python module", 650
)
_UP_TO_A_DAY: Final = (
    "([1-9][0-9]{0,3}|[1-7][0-9]{4})s|([1-9][0-9]{0,2}|1[0-3][0-9]{2}|14[0-3][0-9]|1440)m|([1-9]|1[0-9]|2[0-4])h|1d"
)
HISTORY: Final = Form(
    r"^([1-9][0-9]{0,5}[smh]|[1-9][0-9]{0,4}d)$",
    "a duration of 1s to 99999d, such as 48h or 30d",
    7,
    parse_duration,
    format_duration,
    "_seconds",
)
DAY: Final = Form(
    f"^([1-9][0-9]{{0,6}}ms|{_UP_TO_A_DAY})$",
    "a positive duration of at most 24h, such as 500ms, 30s, 15m or 12h",
    9,
    parse_duration,
    format_duration,
    "_seconds",
)
DAY_OR_ZERO: Final = Form(
    f"^(0s|[1-9][0-9]{{0,6}}ms|{_UP_TO_A_DAY})$",
    "a duration of at most 24h, such as 0s, 500ms, 30s, 15m or 12h",
    9,
    parse_duration,
    format_duration,
    "_seconds",
)
DAY_IN_SECONDS: Final = Form(
    f"^({_UP_TO_A_DAY})$",
    "a duration of 1s to 24h, such as 600s, 10m or 2h",
    6,
    parse_duration,
    format_duration,
    "_seconds",
)
_DAYS: Final = "(?:[0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)"
_MONTHS: Final = "(?:0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)"


def _cron_field(value: str) -> str:
    part = rf"(?:\*|{value}(?:-{value})?)(?:/[1-9][0-9]?)?"
    return f"{part}(?:,{part}){{0,30}}"


CRON: Final = Form(
    "^"
    + " ".join(
        map(_cron_field, ("[0-5]?[0-9]", "(?:[01]?[0-9]|2[0-3])", "(?:0?[1-9]|[12][0-9]|3[01])", _MONTHS, _DAYS))
    )
    + "$",
    "five fields as cron has them: minute, hour, day of the month, month, day of the week, such as 30 2 * * MON-FRI",
    256,
)
TIME_ZONE: Final = Form(
    r"^[A-Z][A-Za-z0-9_+-]{1,30}(/[A-Z][A-Za-z0-9_+-]{0,30}){0,2}$",
    "a time zone such as Europe/Zurich or Etc/UTC",
    100,
)
CANT_BE_CONTENT: Final = "can't have empty names, '.' or '..', nor be deeper or longer than content can be"


def can_be_content(path: str) -> bool:
    """Whether what has the form of a path is one that content can have."""
    try:
        parse_path(path)
    except PathRefusedError:
        return False
    return True


def can_be_content_in_cel(holder: str) -> str:
    """The same in CEL, but for depth and length."""
    return f"{holder} == '/' || !{holder}.matches(r'/\\.{{0,2}}(/|$)')"
