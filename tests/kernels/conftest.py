"""Shared blocks are tested in turns: each test compiles one, and most commits change none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import turns


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and not turns.has_turn(item.nodeid):
            item.add_marker(pytest.mark.skip(reason="takes long, and another part has it"))
