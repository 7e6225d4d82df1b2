"""A content package of AEM, cut and built as a bulk build does. Trees of documentation: `test_real_input.py`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from mailboat.bulk.build_run import BuildOrder
from mailboat.bulk.cutter import Budget
from mailboat.composition.source_openers import open_source
from mailboat.content.differences import differences
from mailboat.content.digest import source_digest
from mailboat.model.paths import ROOT, NodePath
from mailboat.publisher.publisher import replaced_roots
from mailboat.subscriber.subscriber import Until
from support.bulk_scenario import LocalStages, recipe_for, run
from support.engines import Engine


def imported_equals(engine: Engine, source: Path, roots: tuple[NodePath, ...]) -> None:
    """A new subscriber's target has what the source has below these roots."""
    with closing(engine.target("sqlite")) as target, closing(open_source(str(source))) as wanted:
        engine.subscriber(target).run(Until.CAUGHT_UP)
        assert target.ledger.given_up() == []
        for root in roots:
            assert source_digest(target.source(), root) == source_digest(wanted, root), next(
                iter(differences(target.source(), wanted, root)), None
            )


@pytest.mark.long("trees-and-demos")
@pytest.mark.timeout(900)
def test_a_content_package_of_aem_arrives_whole_in_many_packages(core_components: Path, tmp_path: Path) -> None:
    with closing(open_source(str(core_components))) as source:
        roots = tuple(replaced_roots(source, (ROOT,)))
    assert roots
    with Engine(tmp_path / "home") as engine:
        order = BuildOrder(recipe_for(engine, core_components, roots, Budget(50_000, 60)))
        report = run(engine, order)
        assert report.published == report.total > 10
        assert report.problems == ()
        imported_equals(engine, core_components, roots)
        stages = LocalStages(engine.blobs)
        assert (run(engine, order, stages).published, stages.built) == (0, [])
