"""What a plugin in ``pages/`` yields: pages made from a template, and plain files beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Page:
    """One HTML page.

    ``path`` is relative to the site's root (``op/rms_norm.html``). ``template`` is a file in site_templates/ and sees
    the entries of ``context`` beside ``page``, ``site`` and ``root``, the relative way up to the site's root.
    ``charts`` asks for the chart script.
    """

    path: str
    template: str
    title: str
    description: str
    context: Mapping[str, Any] = field(default_factory=dict)
    charts: bool = False


@dataclass(frozen=True)
class File:
    """One plain text file of the site."""

    path: str
    text: str
