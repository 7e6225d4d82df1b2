"""What the environment says."""

from __future__ import annotations

from pathlib import Path

import pytest
from mailboat.composition.environment import Settings, child_environment, current_settings, settings_from


def test_an_empty_environment_means_the_home_is_here() -> None:
    assert settings_from({}) == Settings(Path(".mailboat"), is_verbose=False, is_colour_wanted=True)


def test_an_empty_variable_counts_as_absent() -> None:
    assert settings_from({"MAILBOAT_HOME": "", "MAILBOAT_VERBOSE": "", "NO_COLOR": ""}) == settings_from({})


def test_variables_name_the_home_and_switch_traces_and_colours() -> None:
    found = settings_from({"MAILBOAT_HOME": "~/boat", "MAILBOAT_VERBOSE": "1", "NO_COLOR": "1"})
    assert found == Settings(Path.home() / "boat", is_verbose=True, is_colour_wanted=False)


def test_a_child_is_told_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MAILBOAT_HOME", "elsewhere")
    monkeypatch.setenv("KEPT", "yes")
    child = child_environment(tmp_path)
    assert child["KEPT"] == "yes"
    assert settings_from(child).home == tmp_path
    assert current_settings().home == Path("elsewhere")


def test_an_agent_and_its_token_are_named_by_variables_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MAILBOAT_URL", "http://agent:8080")
    monkeypatch.setenv("MAILBOAT_TOKEN", "let-me-see")
    found = current_settings()
    assert (found.url, found.token) == ("http://agent:8080", "let-me-see")
    assert "let-me-see" not in repr(found)
    child = settings_from(child_environment(tmp_path))
    assert (child.url, child.token) == (None, None)
