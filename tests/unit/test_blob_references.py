"""References to blobs: what is written can be read, and nothing else."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.blobs.references import BlobReference, ReferenceCodec, ReferenceRefusedError
from mailboat.errors import UsageError

KEY = b"a shared key of enough length"
DIGEST = hashlib.sha256(b"content").digest()
REFERENCE = BlobReference(DIGEST, 7)

references = st.builds(BlobReference, st.binary(min_size=32, max_size=32), st.integers(0, 10**18 - 1))
keys = st.one_of(st.none(), st.binary(min_size=16, max_size=64))


@given(reference=references, key=keys)
def test_a_reference_survives_writing_and_reading(reference: BlobReference, key: bytes | None) -> None:
    codec = ReferenceCodec(key)
    assert codec.parse(codec.format(reference)) == reference


def test_the_form_is_the_documented_one() -> None:
    assert ReferenceCodec().format(REFERENCE) == f"sha256:{DIGEST.hex()}:7"
    signed = ReferenceCodec(KEY).format(REFERENCE)
    assert signed.startswith(f"sha256:{DIGEST.hex()}:7:")
    assert len(signed.rsplit(":", 1)[1]) == 64


@given(text=st.text(max_size=300))
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ReferenceRefusedError):
        ReferenceCodec().parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sha256",
        f"sha256:{DIGEST.hex()}",
        f"sha256:{DIGEST.hex()}:",
        f"sha256:{DIGEST.hex()}:-1",
        f"sha256:{DIGEST.hex()}:07",
        f"sha256:{DIGEST.hex()}:+7",
        f"sha256:{DIGEST.hex()}:7 ",
        f"sha256:{DIGEST.hex()}:7\n",
        f" sha256:{DIGEST.hex()}:7",
        f"sha256:{DIGEST.hex()}:\N{ARABIC-INDIC DIGIT SEVEN}",
        f"sha256:{DIGEST.hex()}:1_000",
        f"sha256:{DIGEST.hex()}:{10**18}",
        f"sha256:{DIGEST.hex()}:{'9' * 5000}",
        f"sha256:{DIGEST.hex().upper()}:7",
        f"sha256:{DIGEST.hex()[:-1]}:7",
        f"sha512:{DIGEST.hex()}:7",
        f"sha256:{DIGEST.hex()}:7:",
        f"sha256:{DIGEST.hex()}:7:{'0' * 63}",
        f"sha256:{DIGEST.hex()}:7:{'0' * 64}:more",
        f"sha256:../../../etc/passwd{'0' * 45}:7",
        f"s3://bucket/sha256:{DIGEST.hex()}:7",
    ],
)
def test_hostile_forms_are_refused_in_a_short_message(text: str) -> None:
    for codec in (ReferenceCodec(), ReferenceCodec(KEY)):
        with pytest.raises(ReferenceRefusedError) as refused:
            codec.parse(text)
        assert len(str(refused.value)) < 300


def test_with_a_key_an_unsigned_reference_is_refused() -> None:
    with pytest.raises(ReferenceRefusedError, match="not signed"):
        ReferenceCodec(KEY).parse(ReferenceCodec().format(REFERENCE))


def test_a_signature_of_another_key_is_refused() -> None:
    with pytest.raises(ReferenceRefusedError, match="wrong"):
        ReferenceCodec(KEY).parse(ReferenceCodec(b"another key of enough length").format(REFERENCE))


@given(reference=references, position=st.integers(0, 200), character=st.sampled_from("0123456789abcdef"))
def test_nothing_of_a_signed_reference_can_be_changed(reference: BlobReference, position: int, character: str) -> None:
    text = ReferenceCodec(KEY).format(reference)
    position %= len(text)
    forged = text[:position] + character + text[position + 1 :]
    if forged != text:
        with pytest.raises(ReferenceRefusedError):
            ReferenceCodec(KEY).parse(forged)


def test_without_a_key_a_signature_is_not_looked_at() -> None:
    assert ReferenceCodec().parse(ReferenceCodec(KEY).format(REFERENCE)) == REFERENCE


def test_a_short_key_is_refused() -> None:
    with pytest.raises(UsageError, match="16 bytes"):
        ReferenceCodec(b"short")
