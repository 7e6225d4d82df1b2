"""Headers as one byte string."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.errors import MessageCorruptError
from mailboat.journal.header_codec import HeaderCodec, decode_headers, encode_headers
from mailboat.journal.port import Headers

headers = st.lists(st.tuples(st.text(max_size=20), st.binary(max_size=40)), max_size=6).map(tuple)


@given(headers=headers)
def test_headers_survive_encoding_and_decoding(headers: Headers) -> None:
    assert decode_headers(encode_headers(headers)) == headers


@given(headers=headers)
def test_a_codec_remembers_rightly(headers: Headers) -> None:
    codec = HeaderCodec()
    for _ in range(2):
        encoded = codec.encode(headers)
        assert encoded == encode_headers(headers)
        assert codec.decode(encoded) == headers


def test_no_headers_are_no_bytes() -> None:
    assert encode_headers(()) == b""
    assert decode_headers(b"") == ()


def test_the_form_is_the_documented_one() -> None:
    assert encode_headers((("type", b"2"),)) == b"\0\0\0\4type\0\0\0\1" + b"2"


@given(data=st.binary(max_size=60))
def test_other_bytes_are_refused_or_mean_what_they_encode(data: bytes) -> None:
    try:
        decoded = decode_headers(data)
    except MessageCorruptError:
        return
    assert encode_headers(decoded) == data


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0\1", b"\xff\xff\xff\xffabc", b"\0\0\0\1a", b"\0\0\0\1\xff\0\0\0\0"])
def test_broken_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MessageCorruptError, match="header"):
        decode_headers(data)


def test_ever_new_headers_do_not_fill_the_memory() -> None:
    codec = HeaderCodec()
    for number in range(5000):
        codec.decode(codec.encode((("trace", b"%d" % number),)))
    assert len(codec._encoded) <= 256
    assert len(codec._decoded) <= 256
