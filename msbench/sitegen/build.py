"""Builds the site: every plugin of ``pages/`` yields its pages, and the finished folder takes the old one's place."""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from msbench import plugins, resources
from msbench.errors import MsbenchError
from msbench.scratch import replace_folder, scratch
from msbench.sitegen import format as fmt
from msbench.sitegen.entries import author, slug
from msbench.sitegen.facts import Site
from msbench.sitegen.page import File, Page

if TYPE_CHECKING:
    from jinja2 import Environment

    from msbench.store.store import Store

MARKER = ".msbench-site"
"""The file that says that a folder is a built site, and so may be replaced."""
_MARKED = "This folder was built by `msbench build-site`, which replaces all of it.\n"
PAGES = "msbench.sitegen.pages"


@dataclass(frozen=True)
class Summary:
    """What was built: ``pages`` HTML pages, ``files`` files and ``bytes`` bytes in ``out``."""

    out: Path
    pages: int
    files: int
    bytes: int


def build(store: Store, out: Path, device_id: str | None = None) -> Summary:
    """Build the site of a store into ``out``, in one step: readers see the old site or the new one.

    The same database gives the same bytes. A folder that exists is replaced only if it is empty or a built site.

    Args:
        store: usually ``Store.union(…)``.
        out: the site's folder.
        device_id: whose times are shown; by default the GPU's with the most measurements.

    Raises:
        MsbenchError: ``out`` holds something else, or can't be written.
        StoreError: the store can't be read.
        UnknownNameError: nothing was measured on that device.
    """
    out = out.absolute()
    _check_replaceable(out)
    try:
        with scratch(out.parent, f".{out.name}.msbench-") as work:
            fresh = work / "site"
            pages = _write(Site(store, device_id), fresh)
            files = [p for p in fresh.rglob("*") if p.is_file()]
            size = sum(p.stat().st_size for p in files)
            replace_folder(fresh, out)
    except OSError as error:
        raise MsbenchError(
            f"The site can't be written to {out} ({_reason(error)}): make room there, or choose another folder with --out."
        ) from error
    return Summary(out, pages, len(files), size)


def _reason(error: OSError) -> str:
    """Why; of a folder that could not be copied, why its first file could not be."""
    if isinstance(error, shutil.Error):
        _, _, why = error.args[0][0]
        return str(why)
    return error.strerror or str(error)


def _check_replaceable(out: Path) -> None:
    if not out.exists() or (out / MARKER).is_file():
        return
    if out.is_dir() and not any(out.iterdir()):
        return
    what = "is no folder" if not out.is_dir() else f"holds files, but no site that msbench built (it has no {MARKER})"
    raise MsbenchError(f"{out} {what}, so it is left alone: choose another folder with --out, or empty that one.")


def _write(site: Site, folder: Path) -> int:
    modules = [plugins.load(PAGES, name, "page") for name in plugins.names(PAGES)]
    environment = _environment(site, modules)
    folder.mkdir()
    shutil.copytree(resources.templates_dir() / "static", folder / "static", copy_function=shutil.copyfile)
    (folder / MARKER).write_text(_MARKED, encoding="utf-8")
    (folder / ".nojekyll").write_text("", encoding="utf-8")  # GitHub Pages then serves the files as they are
    pages = 0
    for module in modules:
        for item in _items(module, site):
            target = folder / item.path
            if target.exists():
                raise MsbenchError(f"Two pages want to be {item.path}: one of them is from {module.__name__}.")
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(item, Page):
                pages += 1
                root = posixpath.relpath(".", posixpath.dirname(item.path) or ".") + "/"
                text = environment.get_template(item.template).render(
                    page=item, root=root.removeprefix("./"), **item.context
                )
            else:
                text = item.text
            target.write_text(text, encoding="utf-8", newline="\n")
    return pages


def _items(module: ModuleType, site: Site) -> Iterator[Page | File]:
    found: Iterator[Page | File] = module.pages(site)
    return found


def _environment(site: Site, modules: list[ModuleType]) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(resources.templates_dir()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(fmt.FILTERS, slug=slug, author=author)
    links = [link for module in modules for link in getattr(module, "NAVIGATION", ())]
    environment.globals.update(site=site, navigation=[{"name": name, "href": href} for name, href in links])
    return environment
