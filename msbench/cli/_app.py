"""The typer applications that the command modules add to."""

from __future__ import annotations

from typing import Annotated

import typer

from msbench import __version__

app = typer.Typer(
    name="msbench",
    help="Make CUDA kernels fast with language-model agents, and prove it.",
    epilog="Start with `msbench doctor` and `msbench ops`. Every command has --help with examples.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
db_app = typer.Typer(help="Merge, verify and publish databases.", no_args_is_help=True)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"msbench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
