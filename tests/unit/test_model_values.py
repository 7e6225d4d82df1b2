"""Lexical forms of property values."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.errors import ValueRefusedError
from mailboat.model.nodes import PropertyType
from mailboat.model.values import canonical_value
from mailboat.testing.examples import examples
from mailboat.testing.trees import values

CANONICAL = [
    (PropertyType.LONG, "42", "42"),
    (PropertyType.LONG, "+5", "5"),
    (PropertyType.LONG, "-007", "-7"),
    (PropertyType.LONG, "-0", "0"),
    (PropertyType.LONG, "9223372036854775807", "9223372036854775807"),
    (PropertyType.LONG, "-9223372036854775808", "-9223372036854775808"),
    (PropertyType.DOUBLE, "1", "1.0"),
    (PropertyType.DOUBLE, "1.50", "1.5"),
    (PropertyType.DOUBLE, ".5", "0.5"),
    (PropertyType.DOUBLE, "1E3", "1000.0"),
    (PropertyType.DOUBLE, "NaN", "NaN"),
    (PropertyType.DOUBLE, "-Infinity", "-Infinity"),
    (PropertyType.DOUBLE, "-0.0", "-0.0"),
    (PropertyType.BOOLEAN, "true", "true"),
    (PropertyType.BOOLEAN, "False", "false"),
    (PropertyType.DATE, "2026-01-02T03:04:05.678+01:00", "2026-01-02T03:04:05.678+01:00"),
    (PropertyType.DATE, "2024-02-29T23:59:59.999Z", "2024-02-29T23:59:59.999Z"),
    (PropertyType.DATE, "1500-02-29T00:00:00.000Z", "1500-02-29T00:00:00.000Z"),
    (PropertyType.DATE, "-0044-03-15T12:00:00.000Z", "-0044-03-15T12:00:00.000Z"),
    (PropertyType.DATE, "2026-04-30T00:00:00.000-09:30", "2026-04-30T00:00:00.000-09:30"),
    (PropertyType.DECIMAL, "1.10", "1.10"),
    (PropertyType.DECIMAL, "+01.5", "1.5"),
    (PropertyType.DECIMAL, "1e3", "1E+3"),
    (PropertyType.DECIMAL, "1E-9", "1E-9"),
    (PropertyType.STRING, " any\ttext\x00 ", " any\ttext\x00 "),
    (PropertyType.NAME, "jcr:content", "jcr:content"),
    (PropertyType.PATH, "../a", "../a"),
    (PropertyType.REFERENCE, "5f2d7c9c-0b4e-4a52-8a8e-2f6f0f6f2f0e", "5f2d7c9c-0b4e-4a52-8a8e-2f6f0f6f2f0e"),
    (PropertyType.WEAK_REFERENCE, "x", "x"),
    (PropertyType.URI, "https://example.org/", "https://example.org/"),
]
REFUSED = {
    PropertyType.LONG: [
        "",
        " 1",
        "1 ",
        "1.0",
        "forty-two",
        "1_000",
        "\u0661",
        "9223372036854775808",
        "0x1",
        "9" * 5000,
    ],
    PropertyType.DOUBLE: ["", " 1", "1_0.0", "nan", "inf", "1e999", "0x1p3", "\u0661.5", ".", "1e", "1" * 500, "1d"],
    PropertyType.BOOLEAN: ["", "yes", "1", " true"],
    PropertyType.DECIMAL: ["", "NaN", "Infinity", "1_0", " 1", "\u0661", "1E99999999999", "1E2147483648"],
    PropertyType.DATE: [
        "",
        "2026-01-02",
        "2026-01-02T03:04:05Z",
        "2026-13-02T03:04:05.678Z",
        "2026-00-02T03:04:05.678Z",
        "2026-02-29T03:04:05.678Z",
        "1900-02-29T03:04:05.678Z",
        "2026-04-31T03:04:05.678Z",
        "2026-01-32T03:04:05.678Z",
        "2026-01-02T24:04:05.678Z",
        "2026-01-02T03:60:05.678Z",
        "2026-01-02T03:04:60.678Z",
        "2026-01-02T03:04:05.678+24:00",
        "2026-01-02T03:04:05.678+01:60",
        "2026-01-02T03:04:05.678z",
        "2026-01-02T03:04:05.678Z\n",
        "\u0662026-01-02T03:04:05.678Z",
        "26-01-02T03:04:05.678Z",
    ],
}


@pytest.mark.parametrize(("kind", "text", "expected"), CANONICAL)
def test_a_value_has_one_form(kind: PropertyType, text: str, expected: str) -> None:
    assert canonical_value(kind, text) == expected


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in REFUSED.items() for text in texts])
def test_a_text_that_is_no_value_of_its_type_is_refused(kind: PropertyType, text: str) -> None:
    with pytest.raises(ValueRefusedError, match=kind.name):
        canonical_value(kind, text)


@settings(deadline=None, max_examples=examples(200))
@given(st.sampled_from([kind for kind in PropertyType if kind is not PropertyType.BINARY]), st.text(max_size=30))
def test_the_canonical_form_of_whatever_is_accepted_is_its_own(kind: PropertyType, text: str) -> None:
    try:
        once = canonical_value(kind, text)
    except ValueRefusedError:
        return
    assert canonical_value(kind, once) == once


@settings(deadline=None, max_examples=examples(200))
@given(st.data(), st.sampled_from([kind for kind in PropertyType if kind is not PropertyType.BINARY]))
def test_values_of_test_trees_are_canonical(draw: st.DataObject, kind: PropertyType) -> None:
    text = draw.draw(values(kind))
    assert canonical_value(kind, text) == text
