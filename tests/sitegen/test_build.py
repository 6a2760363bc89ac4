"""The built folder: complete, well-formed, small, the same every time, and never in the place of something else."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urldefrag
from urllib.request import urlopen

import pytest
from rich.console import Console

from msbench import report
from msbench.errors import MsbenchError
from msbench.model import Origin
from msbench.sitegen import build
from msbench.sitegen.build import MARKER
from msbench.sitegen.facts import Site
from msbench.sitegen.serve import server
from msbench.store.store import Store
from tests import factories as make
from tests.sitegen.dom import ENDED_BY, OPTIONAL_ENDS
from tests.sitegen.showcase import NASTY, fill

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Reader(HTMLParser):
    """Checks nesting, and collects ids, links and scripts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src"):
                self.links.append(value or "")
        while self.open and self.open[-1] in ENDED_BY.get(tag, ()):
            self.open.pop()
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while tag in ("table", "dl", "div") and self.open[-1] in OPTIONAL_ENDS:
            self.open.pop()
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]} at {self.getpos()}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_label_means_the_newest_baseline_and_no_one_kernel_of_an_agent() -> None:
    op = make.operator()
    naive = make.candidate(op, "naive", Origin.NAIVE)
    old, new = (make.candidate(op, "cub", Origin.LIBRARY, body=body) for body in ("", "again"))
    first, second = (make.candidate(op, "tiled", body=body) for body in ("", "again"))
    with Store(":memory:") as store:
        for at, version in enumerate((naive, old, new, first, second)):
            for evaluation in make.measured(op, {version: 0.5}, at=60.0 * at):
                store.add_evaluation(op, evaluation)
        names = {one.id: one.name for one in Site(store).versions.values()}
    assert names == {
        naive.id: "naive",
        old.id: f"cub ({old.id[:6]})",
        new.id: "cub",
        first.id: f"tiled ({first.id[:6]})",
        second.id: f"tiled ({second.id[:6]})",
    }


def read(page: Path) -> Reader:
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    reader.close()
    assert reader.open == [], f"{page} leaves {reader.open} open"
    return reader


@pytest.fixture(scope="module")
def small() -> Iterator[Store]:
    """One operator with one timed version."""
    op = make.operator()
    with Store(":memory:") as store:
        for one in make.measured(op, {make.candidate(op, "naive", Origin.NAIVE): 0.3}):
            store.add_evaluation(op, one)
        yield store


PAPER = "https://arxiv.org/abs/2603.07169"
OUTSIDE = (PAPER, "https://www.apache.org/licenses/LICENSE-2.0")


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[Path, Reader]:
    return {page: read(page) for page in sorted(built.rglob("*.html"))}


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_there_is_a_page_for_everything(built: Path, site: Site) -> None:
    assert (built / "index.html").is_file() and (built / "method.html").is_file() and (built / "how.html").is_file()
    assert len(list((built / "op").glob("*.html"))) == len(site.operators)
    assert len(list((built / "version").glob("*.html"))) == len(site.versions)
    assert len(list((built / "run").glob("*.html"))) == len(site.runs) + len(set(site.conversations.values()))


def test_ids_are_unique_and_every_link_leads_somewhere(pages: dict[Path, Reader]) -> None:
    for page, reader in pages.items():
        assert len(reader.ids) == len(set(reader.ids)), page
        for link in reader.links:
            if link in {"data:,", *OUTSIDE}:
                continue
            assert not re.match(r"[a-z]+:|/", link), f"{page} links to {link}"
            path, fragment = urldefrag(link)
            target = (page.parent / unquote(path)).resolve() if path else page
            assert target.is_file(), f"{page} links to {link}"
            if fragment:
                assert fragment in pages[target].ids, f"{page} links to {link}"


def test_every_page_links_the_repository_its_licence_and_its_database(store: Store, tmp_path: Path) -> None:
    there = "https://example.org/msbench"
    out = build(store, tmp_path / "site", repository=f"{there}/").out
    for page in out.rglob("*.html"):
        links = read(page).links
        own = {there, f"{there}/blob/HEAD/LICENSE", f"{there}/blob/HEAD/db/published.sqlite"}
        assert own | ({PAPER} if page.parent == out else set()) <= set(links), page


def test_progress_tells_every_page(store: Store, tmp_path: Path) -> None:
    class Told:
        pages: ClassVar[list[str]] = []

        def advanced(self, done: int, total: int | None, text: str) -> None:
            self.pages.append(text)

    summary = build(store, tmp_path / "site", progress=Told())
    assert len(Told.pages) == summary.pages
    assert any("index.html" in told for told in Told.pages)


def test_markup_in_names_and_sources_comes_out_as_text(pages: dict[Path, Reader], built: Path) -> None:
    for page, reader in pages.items():
        assert not reader.tags & {"img", "object", "iframe"}, page
        assert not any(name.startswith("on") for name in reader.attributes), page
    shown = "".join(pages[built / "op" / "hostile.html"].text)
    assert shown.count(NASTY) >= 5
    assert escape(NASTY, quote=False) not in shown


def test_a_name_from_a_database_can_not_leave_the_site(built: Path) -> None:
    assert {p.name for p in built.parent.iterdir()} == {built.name}
    assert (built / "run" / "------escape.html").is_file()


def test_pages_are_small_and_hold_no_samples(built: Path) -> None:
    for page in built.rglob("*.html"):
        assert page.stat().st_size < 300_000, page


def test_the_same_database_gives_the_same_bytes(built: Path, store: Store, tmp_path: Path) -> None:
    again = build(store, tmp_path / "again")
    assert content(again.out) == content(built)
    with Store(":memory:") as refilled:
        fill(refilled)
        assert content(build(refilled, tmp_path / "refilled").out) == content(built)


def test_times_of_a_cpu_are_never_shown(built: Path) -> None:
    page = (built / "op" / "cpu_only.html").read_text(encoding="utf-8")
    assert not re.search(r"\d\u202f(ns|µs|ms)\b", page)
    assert 'class="chart"' not in page
    assert "checked, not timed" in page


def test_an_empty_database_has_a_site(tmp_path: Path) -> None:
    with Store(":memory:") as nothing:
        summary = build(nothing, tmp_path / "site")
    assert summary.pages == 3
    assert "no tasks yet" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    for page in summary.out.glob("*.html"):
        read(page)


def test_times_without_ceilings_have_no_roofline(small: Store, tmp_path: Path) -> None:
    out = build(small, tmp_path / "site").out
    page = (out / "op" / "scale.html").read_text(encoding="utf-8")
    assert "Roofline" not in page


def test_a_rebuild_removes_what_is_gone(small: Store, tmp_path: Path) -> None:
    out = build(small, tmp_path / "site").out
    assert (out / "op" / "scale.html").exists()
    with Store(":memory:") as nothing:
        build(nothing, out)
    assert not (out / "op").exists()
    assert {p.name for p in tmp_path.iterdir()} == {"site"}  # nothing half-built is left beside it


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_no_site_is_left_alone(kind: str, small: Store, tmp_path: Path) -> None:
    out = tmp_path / "precious"
    if kind == "folder":
        out.mkdir()
        (out / "thesis.tex").write_text("…", encoding="utf-8")
    else:
        out.write_text("…", encoding="utf-8")
    before = content(tmp_path)
    with pytest.raises(MsbenchError, match="nothing was written"):
        build(small, out)
    assert content(tmp_path) == before


def test_a_failed_build_keeps_the_old_site(small: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = build(small, tmp_path / "site").out
    before = content(out)

    def broken(site: Site) -> None:
        raise RuntimeError("a page with a bug")

    monkeypatch.setattr("msbench.sitegen.pages.method.pages", broken)
    with pytest.raises(RuntimeError):
        build(small, out)
    assert content(out) == before
    assert {p.name for p in tmp_path.iterdir()} == {"site"}


def test_an_empty_folder_may_become_a_site(tmp_path: Path) -> None:
    out = tmp_path / "site"
    out.mkdir()
    with Store(":memory:") as nothing:
        assert (build(nothing, out).out / MARKER).is_file()


def test_what_msbench_did_not_build_stays(small: Store, store: Store, tmp_path: Path) -> None:
    """A clone of a repository for Pages, say: the second build replaces the site's own files and no others."""
    out = build(store, tmp_path / "site").out
    (tmp_path / "elsewhere").mkdir()
    others = {
        "CNAME": "kernels.example",
        ".git/HEAD": "ref: refs/heads/main",
        "op/mine.html": "mine",
        "notes/a.txt": "a",
    }
    for name, text in others.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(text, encoding="utf-8")
    (out / "link").symlink_to(tmp_path / "elsewhere")
    for built_from in (small, store, small):
        build(built_from, out)
        assert {name: (out / name).read_text(encoding="utf-8") for name in others} == others
        assert (out / "link").is_symlink()
    fresh = build(small, tmp_path / "fresh").out
    ours = {path: data for path, data in content(out).items() if path not in others}
    assert ours == content(fresh)


def test_a_file_that_a_page_would_replace_is_not_lost(small: Store, store: Store, tmp_path: Path) -> None:
    out = build(small, tmp_path / "site").out
    page = next(path for path in content(build(store, tmp_path / "large").out) if not (out / path).exists())
    (out / page).parent.mkdir(exist_ok=True)
    (out / page).write_text("mine", encoding="utf-8")
    before = content(out)
    with pytest.raises(MsbenchError, match=r"which msbench did not build and a page would overwrite: move it away"):
        build(store, out)
    assert content(out) == before


def test_a_site_that_does_not_list_its_files_is_left_alone(small: Store, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / MARKER).write_text("This folder was built by `msbench build-site`.\n", encoding="utf-8")
    with pytest.raises(MsbenchError, match="by an earlier msbench, which did not list its files: delete it"):
        build(small, tmp_path / "site")


PLUGIN = """
from msbench.sitegen.page import File, Page

NAVIGATION = (("Devices", "devices.html"),)

def pages(site):
    yield Page("devices.html", "base.html", "Devices", f"{len(site.devices)} devices")
    yield File("devices.txt", "\\n".join(d.name for d in site.devices.values()))
"""


def test_a_page_is_one_file(small: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from msbench.sitegen import pages as package

    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "zz_devices.py").write_text(PLUGIN, encoding="utf-8")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    out = build(small, tmp_path / "site").out
    monkeypatch.delitem(sys.modules, "msbench.sitegen.pages.zz_devices")
    assert (out / "devices.txt").read_text(encoding="utf-8") == "NVIDIA Test GPU"
    assert read(out / "devices.html").ids == ["main"]
    assert "../devices.html" in read(out / "op" / "scale.html").links


def test_two_pages_of_one_name_are_refused(small: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from msbench.sitegen.page import File

    monkeypatch.setattr("msbench.sitegen.pages.method.pages", lambda site: iter([File("index.html", "")]))
    with pytest.raises(MsbenchError, match=r"Two pages have the path index.html; one is from .*method"):
        build(small, tmp_path / "site")


def test_the_site_is_served_on_this_machine_only(built: Path) -> None:
    import threading

    with server(built, 0) as running:
        assert running.server_address[0] == "127.0.0.1"
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            with urlopen(f"http://127.0.0.1:{running.server_port}/index.html", timeout=10) as answer:
                assert answer.read() == (built / "index.html").read_bytes()
            with pytest.raises(MsbenchError, match="--port"):
                server(built, running.server_port)
        finally:
            running.shutdown()
            thread.join()


def test_serving_nothing_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(MsbenchError, match="msbench build-site"):
        server(tmp_path, 0)


def test_a_speed_without_a_pass_is_never_shown(tmp_path: Path) -> None:
    op = make.operator()
    naive, quick = make.candidate(op, "naive", Origin.NAIVE), make.candidate(op, "quick")
    with Store(":memory:") as store:
        for one in make.measured(op, {naive: 0.3, quick: 0.9}):
            store.add_evaluation(op, one)
        store.add_evaluation(op, make.failed(op, quick, at=5))
        found = Site(store).versions[quick.id]
        assert (found.cases, found.over_naive, found.state) == ((), None, "wrong result")
        page = (build(store, tmp_path / "site").out / found.href).read_text(encoding="utf-8")
    assert "Wrong result: N=65536: y[17] is 0.5" in page
    assert not re.search(r"\d\u202f(ns|µs|ms)\b", page)


def test_what_disturbed_a_measurement_is_said_on_the_site_and_by_eval(tmp_path: Path) -> None:
    op = make.operator()
    note = "clocks were held down by the power cap for 31% of the time"
    (one,) = make.measured(op, {make.candidate(op, "naive", Origin.NAIVE): 0.3})
    first, *others = one.measurements
    one = replace(one, measurements=(replace(first, throttle=note), *(replace(m, throttle="") for m in others)))
    with Store(":memory:") as store:
        store.add_evaluation(op, one)
        version = Site(store).versions[one.candidate.id]
        page = (build(store, tmp_path / "site").out / version.href).read_text(encoding="utf-8")
    assert page.count(f"<small>{note}</small>") == 1
    said = StringIO()
    report.evaluation(Console(file=said, width=300), op, [one])
    assert said.getvalue().count(note) == 1
    assert [case["disturbed"] for case in report.as_json(op, [one])["versions"][0]["cases"]] == [note] + [None] * len(
        others
    )


def test_what_an_evaluation_notes_is_said_beside_its_times(tmp_path: Path) -> None:
    op = make.operator()
    (one,) = make.measured(op, {make.candidate(op, "prepared", Origin.LIBRARY): 0.3})
    one = replace(one, note="Not timed: preparing for the arrays of a case, which took 130 µs (N=64).")
    with Store(":memory:") as store:
        store.add_evaluation(op, one)
        version = Site(store).versions[one.candidate.id]
        page = (build(store, tmp_path / "site").out / version.href).read_text(encoding="utf-8")
    assert page.count(f"<p class=note>{one.note}</p>") == 1
