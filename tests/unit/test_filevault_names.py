"""Names in zips and in XML, by FileVault's own examples, and that every name comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.packages.filevault.names import (
    decode_xml_name,
    directory_name,
    is_ignored,
    platform_name,
    property_file_name,
    repository_name,
    split_property_file,
    xml_name,
)

ODD = st.one_of(st.sampled_from('_:%<>|\\"?[]. ab0x41'), st.characters(codec="utf-8", exclude_characters="/"))
NAMES = st.text(ODD, min_size=1, max_size=14)


@pytest.mark.parametrize(
    ("name", "platform"),
    [
        ("test.jpg", "test.jpg"),
        ("cq:content", "_cq_content"),
        ("test_image.jpg", "test_image.jpg"),
        ("_testimage.jpg", "_testimage.jpg"),
        ("_test_image.jpg", "__test_image.jpg"),
        ("cq:test:image.jpg", "_cq_test%3aimage.jpg"),
        ("_cq_:test", "__cq_%3atest"),
        ("cq:a_b", "_cq_a_b"),
        (":test", "%3atest"),
        ("a<b>c", "a%3cb%3ec"),
        ("100%", "100%25"),
        ("_", "_"),
        ("__", "___"),
        ("_<", "%5f%3c"),
        (".content.xml", "%2econtent.xml"),
        (".vlt", "%2evlt"),
        (".vlt-sync", "%2evlt-sync"),
        (".hidden", ".hidden"),
        ("Ärger", "Ärger"),
    ],
)
def test_platform_names(name: str, platform: str) -> None:
    assert platform_name(name) == platform
    assert repository_name(platform) == name


@pytest.mark.parametrize(
    ("platform", "name"),
    [
        ("_jcr_content", "jcr:content"),
        ("50%off", "50%off"),
        ("%zz", "%zz"),
        ("_a", "_a"),
        ("%", "%"),
        ("__jcr", "_jcr"),
    ],
)
def test_platform_names_of_others(platform: str, name: str) -> None:
    assert repository_name(platform) == name


@given(name=NAMES)
def test_every_name_comes_back_from_a_zip(name: str) -> None:
    platform = platform_name(name)
    assert repository_name(platform) == name
    assert not is_ignored(platform)
    assert not set(platform) & set('\\<>|":?/')
    assert repository_name(directory_name(name)).removesuffix(".dir") == name.removesuffix(".dir") or ".dir" not in name


@given(name=NAMES, index=st.none() | st.integers(0, 999_999))
def test_every_binary_finds_its_property(name: str, index: int | None) -> None:
    assert split_property_file(property_file_name(name, index)) == (name, index)


@pytest.mark.parametrize(
    ("name", "xml"),
    [
        ("jcr:content", "jcr:content"),
        ("a b", "a_x0020_b"),
        ("1st", "_x0031_st"),
        ("_x0041_", "_x005f_x0041_"),
        ("name[2]", "name_x005b_2_x005d_"),
        ("xmlns", "_x0078_mlns"),
        ("xmlns:a", "xmlns_x003a_a"),
        ("a:b:c", "a_x003a_b_x003a_c"),
        ("😀", "_xd83d__xde00_"),
        ("ns1_1_:ColorClass", "ns1_1_:ColorClass"),
    ],
)
def test_xml_names(name: str, xml: str) -> None:
    assert xml_name(name) == xml


@given(name=NAMES)
def test_every_name_comes_back_from_xml(name: str) -> None:
    prefix, colon, local = xml_name(name).rpartition(":")
    assert prefix + colon + decode_xml_name(local) == name


def test_half_of_a_surrogate_pair_is_no_name() -> None:
    with pytest.raises(ValueError, match="utf-16"):
        decode_xml_name("_xd83d_")
