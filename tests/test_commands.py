"""A recorded command says what to type, not where its author's files lay."""

from __future__ import annotations

import pytest

from msbench.commands import typed


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("msbench study --kind same --db /tmp/x.sqlite", "msbench study --kind same"),
        ("msbench mutants --record --markdown=/tmp/m.md relu", "msbench mutants --record relu"),
        ("msbench exploits --folder /home/me/exploits --quick", "msbench exploits --quick"),
        ("msbench exploits --folder=/home/me/exploits", "msbench exploits"),
        ("msbench exploits --folder tests/exploits/outside", "msbench exploits --folder tests/exploits/outside"),
        ("msbench exploits --folder=mine --quick", "msbench exploits --folder=mine --quick"),
        ("msbench bench --db", "msbench bench"),
        ("msbench bench 'unclosed", "msbench bench 'unclosed"),
    ],
)
def test_where_files_lay_is_left_out(recorded: str, shown: str) -> None:
    assert typed(recorded) == shown
