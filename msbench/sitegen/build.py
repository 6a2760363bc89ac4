"""Builds the site: every plugin of ``pages/`` yields its pages, and the finished folder takes the old one's place.

A built folder lists its files. What else lies in it, say a repository or a CNAME, stays when it is built again.
"""

from __future__ import annotations

import gzip
import os
import posixpath
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from msbench import plugins, resources
from msbench.errors import MsbenchError
from msbench.scratch import replace_folder, scratch
from msbench.sitegen import format as fmt
from msbench.sitegen.entries import sized, slug
from msbench.sitegen.facts import Site
from msbench.sitegen.lean import lean
from msbench.sitegen.page import File, Page

if TYPE_CHECKING:
    from jinja2 import Environment

    from msbench.store.store import Store

MARKER = ".msbench-site"
"""The file that says that a folder is a built site, and lists its files: these may be replaced."""
_MARKED = "These files were built by `msbench build-site`, which replaces them and no others:\n"
PAGES = "msbench.sitegen.pages"
_SORTED_BY = re.compile(r'data-v="(\d+\.\d+(?:e[-+]\d+)?)"')
"""What a column is sorted by: six digits order it as well as seventeen."""


@dataclass(frozen=True)
class Summary:
    """What was built: ``pages`` HTML pages, ``files`` files and ``bytes`` bytes in ``out``."""

    out: Path
    pages: int
    files: int
    bytes: int


class Progress(Protocol):
    """What is told of each page as it is written."""

    def advanced(self, done: int, total: int | None, text: str) -> None: ...


def build(
    store: Store,
    out: Path,
    device_id: str | None = None,
    *,
    repository: str | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Build the site of a store into ``out``, in one step: readers see the old site or the new one.

    The same database gives the same bytes. A folder that exists is written to only if it is empty or a built site; of that
    only its own files are replaced. With others among them it is done file by file, not in one step.

    Args:
        store: usually ``union(…)``.
        out: the site's folder.
        device_id: whose times are shown; by default those of the first GPU of ``Store.recorded_devices``.
        repository: the address that pages link to; by default the one that the installed package names, if it names one.
        progress: what is told of each page.

    Raises:
        MsbenchError: ``out`` holds something else, or can't be written.
        StoreError: the store can't be read.
        UnknownNameError: nothing was measured on that device.
    """
    out = out.absolute()
    old = _own(out)
    try:
        with scratch(out.parent, f".{out.name}.msbench-") as work:
            fresh = work / "site"
            pages = _write(Site(store, device_id), fresh, repository or resources.repository(), progress)
            _mark(fresh, _files(fresh))
            files = _files(fresh)
            size = sum((fresh / name).stat().st_size for name in files)
            foreign = _files(out) - old
            if foreign:
                _replace_own(fresh, out, old, files, foreign)
            else:
                replace_folder(fresh, out)
    except OSError as error:
        raise MsbenchError(
            f"The site can't be written to {out} ({_reason(error)}): free some space, or choose another folder with --out."
        ) from error
    return Summary(out, pages, len(files), size)


def _reason(error: OSError) -> str:
    """Why; of a folder that could not be copied, why its first file could not be."""
    if isinstance(error, shutil.Error):
        _, _, why = error.args[0][0]
        return str(why)
    return error.strerror or str(error)


def _files(folder: Path) -> set[str]:
    """The files in a folder, links among them, relative to it."""
    return {
        (Path(at) / name).relative_to(folder).as_posix()
        for at, folders, names in os.walk(folder)
        for name in (*names, *(f for f in folders if (Path(at) / f).is_symlink()))
    }


def _mark(folder: Path, files: Iterable[str]) -> None:
    text = _MARKED + "".join(f"{name}\n" for name in sorted({*files, MARKER}))
    (folder / f"{MARKER}.new").write_text(text, encoding="utf-8")
    (folder / f"{MARKER}.new").replace(folder / MARKER)


def _replace_own(fresh: Path, out: Path, old: set[str], new: set[str], foreign: set[str]) -> None:
    """Replace a site's own files where others lie among them. Until the end both sites' files are listed as its own."""
    taken = sorted(foreign & new)
    if taken:
        raise MsbenchError(
            f"{out} holds {taken[0]}, which msbench did not build and a page would overwrite: move it away, or choose another "
            "folder with --out."
        )
    _mark(out, old | new)
    for name in sorted(new - {MARKER}, key=lambda name: (name.endswith(".html"), name)):  # pages after what they show
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (fresh / name).replace(out / name)
    for name in old - new:
        (out / name).unlink(missing_ok=True)
        with suppress(OSError):  # other files are in it
            (out / name).parent.rmdir()
    _mark(out, new)


def _own(out: Path) -> set[str]:
    """The files of the site in a folder; none if it is not there or empty.

    Raises:
        MsbenchError: it holds something else, or does not say which files are the site's.
    """
    marker = out / MARKER
    if marker.is_file():
        title, *names = marker.read_text(encoding="utf-8", errors="replace").splitlines()
        if f"{title}\n" == _MARKED:
            return {name for name in names if ".." not in name.split("/") and not name.startswith("/")}
        raise MsbenchError(
            f"The site in {out} was built by an earlier msbench, which did not list its files: delete it, or choose another "
            "folder with --out."
        )
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return set()
    what = (
        "is not a folder" if not out.is_dir() else f"holds files, but no site that msbench built (it has no {MARKER})"
    )
    raise MsbenchError(f"{out} {what}, so nothing was written: choose another folder with --out, or empty this one.")


def _write(site: Site, folder: Path, repository: str | None, progress: Progress | None) -> int:
    modules = [plugins.load(PAGES, name, "page") for name in plugins.names(PAGES)]
    environment = _environment(site, modules, repository)
    folder.mkdir()
    shutil.copytree(resources.templates_dir() / "static", folder / "static", copy_function=shutil.copyfile)
    for packed in (folder / "static").glob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    (folder / ".nojekyll").write_text("", encoding="utf-8")  # GitHub Pages then serves the files as they are
    pages = 0
    for module in modules:
        for item in _items(module, site):
            target = folder / item.path
            if target.exists():
                raise MsbenchError(f"Two pages have the path {item.path}; one is from {module.__name__}.")
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(item, Page):
                pages += 1
                if progress:
                    progress.advanced(pages, None, f"{pages}: {item.path}")
                root = posixpath.relpath(".", posixpath.dirname(item.path) or ".") + "/"
                text = environment.get_template(item.template).render(
                    page=item, root=root.removeprefix("./"), **item.context
                )
                text = lean(_SORTED_BY.sub(lambda found: f'data-v="{float(found[1]):.6g}"', text))
            else:
                text = item.text
            target.write_text(text, encoding="utf-8", newline="\n")
    return pages


def _items(module: ModuleType, site: Site) -> Iterator[Page | File]:
    found: Iterator[Page | File] = module.pages(site)
    return found


def _environment(site: Site, modules: list[ModuleType], repository: str | None) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(resources.templates_dir()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(fmt.FILTERS, slug=slug, sized=sized)
    links = [link for module in modules for link in getattr(module, "NAVIGATION", ())]
    environment.globals.update(site=site, repository=repository and repository.rstrip("/"))
    environment.globals.update(navigation=[{"name": name, "href": href} for name, href in links])
    return environment
