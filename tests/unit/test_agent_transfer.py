"""How packages travel that are too large for a message, as the configuration says."""

from __future__ import annotations

import pytest
from mailboat.config.decoder import decode_config
from mailboat.config.document import Transfer, transfer_of

S3 = {"s3": {"bucket": "content"}}
KAFKA = {"kafka": {"bootstrap_servers": ["broker:9092"]}}


@pytest.mark.parametrize(
    ("transfer", "journal", "blobs", "are_cut"),
    [
        ("reference", {}, {}, False),
        ("reference", KAFKA, {}, False),
        ("chunks", {}, {}, True),
        ("chunks", KAFKA, S3, True),
        ("auto", {}, {}, False),
        ("auto", KAFKA, {}, True),
        ("auto", KAFKA, S3, False),
        ("auto", {}, S3, False),
    ],
)
def test_chunks_are_for_those_who_share_nothing_but_the_journal(
    transfer: str, journal: dict[str, object], blobs: dict[str, object], are_cut: bool
) -> None:
    config = decode_config({"publisher": {"transfer": transfer}, "journal": journal, "blobs": blobs})
    assert (transfer_of(config) is Transfer.CHUNKS) is are_cut
