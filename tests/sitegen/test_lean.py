"""Leaner HTML is the same document."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.sitegen.lean import lean
from tests.sitegen.dom import Node, parse

TABLE = """<table class="numbers">
<thead><tr><th scope="col">case</th>
<th scope="col">time</th></tr></thead>
<tbody>
<tr><td class="t">a
b</td> <td><small class="a b">1</small></td></tr>
</tbody>
</table>
<dl>
<dt>x</dt>
<dd>y</dd>
</dl>
<p>between</p>"""


def shape(node: Node) -> object:
    """Tags, attributes and texts without blanks at their ends."""
    inner = [shape(child) if isinstance(child, Node) else child.strip() for child in node.children]
    return node.tag, node.attributes, [one for one in inner if one]


def test_a_table_and_a_list_keep_their_cells() -> None:
    assert shape(parse(lean(TABLE))) == shape(parse(TABLE))
    assert len(lean(TABLE)) < 0.75 * len(TABLE)


@given(st.text(alphabet="ab <>&\"'\n/tdr=", max_size=40))
def test_code_and_scripts_stay_as_they_are(text: str) -> None:
    escaped = (
        text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&#34;").replace("'", "&#39;")
    )
    pre = parse(lean(f"<div>\n<pre>{escaped}</pre>\n</div>")).first("pre")
    assert pre is not None and pre.raw == text
    script = '<script type="application/json">["<\\/td>\n </tr>"]</script>'
    assert script in lean(f"<p>\n{script}\n</p>")


@pytest.mark.parametrize(
    "html",
    [
        '<a href="x/" title="a b" data-v="1.5e-3">&#34;quoted&#34;, it&#39;s</a>',
        '<a href="../op/x.html?a=b">=</a><input value="" type="text"/>',
        '<i style="--w:36.5%" title="&#34;"></i>',
    ],
)
def test_attributes_and_texts_mean_the_same(html: str) -> None:
    assert shape(parse(lean(html))) == shape(parse(html))


def test_it_was_done_to_every_page(built: Path) -> None:
    assert not [page for page in built.rglob("*.html") if "</td>" in page.read_text(encoding="utf-8")]
