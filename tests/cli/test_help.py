"""Every command explains itself, and documents show what is there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from msbench.cli import app
from tests.cli.running import CHECKOUT, COMMANDS, DB_COMMANDS, GROUP


@pytest.mark.parametrize("command", [c for c in COMMANDS if c != "db"] + [f"db {c}" for c in DB_COMMANDS])
def test_every_command_has_help_with_an_example(command: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    (example,) = re.findall(r"Example: +msbench (.+)", shown.output)
    assert example.startswith(command)
    words = shlex.split(example.rstrip())
    options = [word for word in words if word.startswith("--")]
    assert all(option in shown.output for option in options)


@pytest.mark.parametrize("command", ["", "optimize", "db merge"])
def test_help_loads_nothing_that_it_does_not_need(command: str) -> None:
    """These take most of a second together; help is there in a third of one."""
    heavy = {"sqlmodel", "sqlalchemy", "numpy", "scipy", "jinja2", "openai", "plotly"}
    says = f"""
import sys
from msbench.cli import app
try:
    app({[*command.split(), "--help"]})
finally:
    sys.stderr.write(" ".join({heavy} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", says], env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage:" in done.stdout


def test_help_names_the_commands_and_the_readme_shows_them() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert re.search(rf"^\W*{command}\b", shown, re.MULTILINE)
        assert re.search(rf"\bmsbench {command}\b|\bmake {command}\b", readme), f"README.md does not show {command}"


@pytest.mark.parametrize("document", ["README.md", *sorted(f"docs/{p.name}" for p in (CHECKOUT / "docs").glob("*.md"))])
def test_documents_show_commands_and_options_that_are_there(document: str) -> None:
    text = (CHECKOUT / document).read_text(encoding="utf-8")
    for line in re.findall(r"(?:^\$ |`)msbench ([a-z][^#`\n]*)", text, re.MULTILINE):
        words = [word for part in line.split("&&") for word in part.replace("msbench ", "").split()]
        command, *rest = words
        assert command in COMMANDS, line
        if "&&" in line:
            continue
        found: Any = GROUP.commands[command]  # type: ignore[attr-defined]
        if command == "db":
            found = found.commands[rest[0]]
        known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= known | {"--help"}, line
