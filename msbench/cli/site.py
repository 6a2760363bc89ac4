"""Commands that show: build-site, serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from msbench import databases, report
from msbench.cli import _interruption
from msbench.cli._app import app
from msbench.cli._options import Db, err, out

SITE = Path("build/site")
"""Not site/: in a checkout that is the published one, which holds nothing that was run here."""


@app.command("build-site")
def build_site(
    folder: Annotated[Path, typer.Option("--out", help="Output folder; created if missing.")] = SITE,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            help="The device whose times are shown: (part of) its name, or its id. Default: the one with the most.",
            show_default=False,
        ),
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(
            "--repository",
            help="URL of the repository that pages link to, with its licence and database. Default: the package's own.",
            show_default=False,
        ),
    ] = None,
    db: Db = None,
) -> None:
    """Build the static site from the databases.

    It needs no server: open index.html, or publish the folder.

    Example: `msbench build-site --out public`
    """
    from msbench.archive.superseded import drop_superseded
    from msbench.sitegen.build import build

    with report.Live(err) as live:
        live.started("reading the database")
        store = databases.sound(db, "No site is built from")
        drop_superseded(store)  # in memory: the site shows what `msbench db publish` keeps, and is the same after it
        live.started("building pages")
        chosen = store.recorded_device(device).id if device else None
        summary = build(store, folder, chosen, repository=repository, progress=live)
    uri = (folder / "index.html").resolve().as_uri()
    out.print(f"{summary.pages} pages, {summary.bytes / 1e6:.1f} MB: {uri}", soft_wrap=True)


@app.command()
def serve(
    folder: Annotated[Path, typer.Option("--site", help="The folder that `msbench build-site` made.")] = SITE,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port on the loopback interface; 0 picks a free one.")
    ] = 8000,
) -> None:
    """Serve the site on this machine until Ctrl-C.

    Example: `msbench serve --site public --port 0`
    """
    from msbench.sitegen.serve import server

    with server(folder, port) as running:
        _interruption.current.is_the_end = True
        out.print(f"serving {folder} at http://127.0.0.1:{running.server_port}, Ctrl-C to stop")
        running.serve_forever()
