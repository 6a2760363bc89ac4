"""What a version's page says of other inputs, and that no score, mean or chart knows of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from msbench import sitegen
from msbench.model import Candidate, Origin
from msbench.sitegen import verdict
from msbench.sitegen.facts import Site
from msbench.store.store import Store
from tests import factories as make
from tests.sitegen.truth import complaints

OP = make.operator()
NAIVE = make.candidate(OP, "naive", Origin.NAIVE)
LIBRARY = make.candidate(OP, "vendor", Origin.LIBRARY)
BEST = make.candidate(OP, "best", Origin.EXPERT, parents=[NAIVE.id])
TWIN = replace(OP.cases[2], distribution="spiked")


def filled(store: Store, on_twin: Mapping[Candidate, float]) -> Store:
    store.add_ceilings(make.GPU, make.CEILINGS)
    for one in make.measured(OP, {NAIVE: 0.2, LIBRARY: 0.4, BEST: 0.8}, cases=(*OP.cases, TWIN)):
        store.add_evaluation(OP, make.slowed(replace(one, profiles=()), TWIN, on_twin.get(one.candidate, 1.0)))
    return store


@pytest.mark.parametrize(("on_twin", "said"), [({BEST: 1.2}, "1.20×"), ({BEST: 0.8}, "0.80×")])
def test_a_version_that_owes_its_time_to_the_inputs_says_so(on_twin: Mapping[Candidate, float], said: str) -> None:
    with Store(":memory:") as store:
        site = Site(filled(store, on_twin))
        [sentence] = verdict.owed(site.versions[BEST.id])
        assert re.match(rf"On {OP.cases[2].id} it takes \S+ as long with spiked inputs as with uniform ones", sentence)
        assert float(sentence.split("takes ")[1].split("×")[0]) == pytest.approx(float(said[:-1]), abs=0.02)
        assert not verdict.owed(site.versions[LIBRARY.id]) and not verdict.owed(site.versions[NAIVE.id])


@pytest.mark.parametrize("on_twin", [{}, {BEST: 1.2, LIBRARY: 1.2}, {LIBRARY: 1.2}])
def test_one_that_does_not_or_as_a_library_does_says_nothing(on_twin: Mapping[Candidate, float]) -> None:
    with Store(":memory:") as store:
        site = Site(filled(store, on_twin))
        assert not any(verdict.owed(version) for version in site.versions.values())


def test_only_the_tables_of_a_version_have_its_times_on_other_inputs(tmp_path: Path) -> None:
    with Store(":memory:") as store:
        site = Site(filled(store, {BEST: 1.2}))
        page = site.versions[BEST.id].href
        sitegen.build(store, tmp_path / "site")
    assert complaints(tmp_path / "site") == []
    naming = {path.relative_to(tmp_path / "site"): path.read_text("utf-8") for path in tmp_path.rglob("*.html")}
    named = {str(path) for path, text in naming.items() if TWIN.id in text}
    assert named == {version.href for version in site.versions.values()}
    text = naming[Path(page)]
    assert TWIN.id not in "".join(re.findall("<figure.*?</figure>", text, re.DOTALL))
    [table] = re.findall('<h3 id="?twins.*?</table>', text, re.DOTALL)
    assert text.count(TWIN.id) == table.count(TWIN.id) == 1


@pytest.mark.parametrize("hot", [True, False])
def test_there_is_a_column_of_hot_times_where_there_are_any(tmp_path: Path, hot: bool) -> None:
    with Store(":memory:") as store:
        for one in make.measured(OP, {NAIVE: 0.2}, cases=(*OP.cases, TWIN)):
            timed = one.measurements if hot else tuple(replace(m, hot_ns=None) for m in one.measurements)
            store.add_evaluation(OP, replace(one, measurements=timed))
        [version] = Site(store).versions.values()
        sitegen.build(store, tmp_path / "site")
    text = (tmp_path / "site" / version.href).read_text("utf-8")
    assert len(re.findall(r"<th[^>]*>hot\b", text)) == 2 * hot
