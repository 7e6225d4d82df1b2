"""The names under which people ask what became of a package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from mailboat.api.records import DistributionView
from mailboat.composition.home import create_home
from mailboat.composition.workspace import Workspace, initialise
from mailboat.config.document import Config
from mailboat.control.service import ControlService
from mailboat.errors import DistributionMissingError
from mailboat.model.requests import parse_request


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ControlService]:
    home = create_home(tmp_path / "home", Config())
    initialise(home).__exit__(None, None, None)
    with Workspace(home) as workspace:
        workspace.publisher("author")
        with closing(ControlService(workspace)) as made:
            yield made


def publish(service: ControlService, request_id: str) -> DistributionView:
    return service.distribute("author", parse_request("INVALIDATE", ("/a",), request_id=request_id))


@pytest.mark.parametrize("name", ["1", "package-0@1"])
def test_an_offset_and_a_queue_item_name_a_package(service: ControlService, name: str) -> None:
    publish(service, "r-0")
    second = publish(service, "r-1")
    assert service.distribution("author", name).package_id == second.package_id


def test_a_request_id_of_digits_goes_before_an_offset(service: ControlService) -> None:
    first = publish(service, "1")
    publish(service, "r-1")
    assert service.distribution("author", "1").package_id == first.package_id


@pytest.mark.parametrize("name", ["7", "other-0@0", "package-0@"])
def test_what_names_nothing_is_missing(service: ControlService, name: str) -> None:
    publish(service, "r-0")
    with pytest.raises(DistributionMissingError):
        service.distribution("author", name)
