"""What contradicts itself on a built site: any folder of its pages, whatever version of msbench built them.

Everything is read from what a reader sees, sentences, tables and the marks of charts, and compared with each other. Of attributes
only a row's session counts, which a day may not tell from another. Run it by hand: ``python -m tests.sitegen.truth site``.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from tests.sitegen.dom import Node, Table, table
from tests.sitegen.shown import (
    DAY,
    ENDS,
    NUMBER,
    RATIO,
    RIVALS,
    Pages,
    Row,
    Shown,
    days,
    interval,
    number,
    ratio,
    said_of,
)

Found = Iterator[str]


def complaints(folder: Path) -> list[str]:
    """Everything that contradicts itself, page by page."""
    site = Pages(folder)
    rules = (charts, tasks, versions, home, runs, strategies, sessions, authors, how)
    return [f"{page}: {what}" for rule in rules for page, what in rule(site)]


# ------------------------------------------------------------------ charts


def charts(site: Pages) -> Iterator[tuple[str, str]]:
    """Each point has its own day, which its caption covers; lines connect like cases; no mark hides another."""
    for page, node in site.pages.items():
        odd = {
            cells[0].text
            for one in map(table, node.all("table"))
            if one.heads[:2] in (("size", "split"), ("case", "split"))
            for _, cells in one.rows
            if cells[1].text == "odd"
        }
        for figure in node.all("figure"):
            script = figure.first("script")
            if script is None:
                continue
            for what in _chart(figure, _whole(json.loads(script.raw)["data"]), odd):
                yield page, f"chart {figure.attributes.get('id', '')}: {what}"


def _whole(drawn: list[dict[str, object]]) -> list[dict[str, object]]:
    """A chart's traces, each with the lists that it shares with an earlier one, and case and text as a reader sees them."""
    for one in drawn:
        one |= {
            name: drawn[at][name] for name, at in one.items() if name in ("x", "customdata") and isinstance(at, int)
        }
        if "customdata" in one:
            one["text"] = [f"{case}<br>{text}" for case, text in zip(one["customdata"], one["text"], strict=True)]  # type: ignore[call-overload]
    return drawn


def _chart(figure: Node, drawn: list[dict[str, object]], odd: set[str]) -> Found:
    seen: list[datetime] = []
    marks = [one for one in drawn if one["type"] == "bar" or one.get("mode") == "markers"]
    for one in marks:
        if one.get("meta") == "roof":
            continue
        shared = "".join(re.findall(rf"<br>{DAY.pattern}", str(one.get("hovertemplate"))))
        texts = [f"{text}{shared}" for text in one.get("hovertext") or one.get("text") or [] if text]  # type: ignore[attr-defined]
        undated = [text for text in texts if re.search(r"\d", text) and not DAY.search(text)]
        if undated:
            yield f"{len(undated)} points of {one.get('name')} have no day of their own, say {undated[0].replace('<br>', ' ')}"
        seen += [day for text in texts for day in days(text)]
    caption = figure.first("figcaption")
    named = days(caption.text) if caption else []
    if seen and not (named and min(named) <= min(seen) and max(seen) <= max(named)):
        yield f"its caption names other days than its points have, {min(seen):%d %B} to {max(seen):%d %B}"
    if (
        "Measured on" in (caption.text if caption else "")
        and seen
        and {min(named), max(named)} != {min(seen), max(seen)}
    ):
        yield "its caption names days on which no point was measured"
    cases: dict[object, set[str]] = defaultdict(set)
    for one in marks:
        for x, text in zip(one["x"], one.get("text") or (), strict=False):  # type: ignore[call-overload]
            cases[x].add(str(text).partition("<br>")[0])
    if str(figure.attributes.get("id", "")).startswith("time-"):
        for one in drawn:
            if one.get("mode") == "lines" and one.get("meta") != "roof":
                unlike = [x for x in one["x"] if cases[x] and cases[x] <= odd]  # type: ignore[attr-defined]
                if unlike:
                    yield f"a line of {one['meta']} goes through an odd case, {sorted(cases[unlike[0]])[0]}"
    sizes = {str(one["meta"]): one["marker"]["size"] for one in marks if "marker" in one and "size" in one["marker"]}  # type: ignore[index,operator]
    if sizes.get("child", 99) <= sizes.get("best", 0):
        yield "a child's marks may be hidden under its parent's"


# ------------------------------------------------------------------ tasks and versions


def tasks(site: Pages) -> Iterator[tuple[str, str]]:
    """A table ranks one session over one denominator, its sentence has its figures, and only the best is called best."""
    for task, rows in site.tasks.items():
        page, verdict = f"op/{task.split('/')[0]}.html", site.verdicts[task]
        timed = [row for row in rows if ratio(row.cells.get("over naive", ""))]
        if timed and "measured" not in timed[0].cells:
            yield page, f"{task}: its rows do not say when they were measured"
        ranked = [row for row in timed if not row.apart]
        if len({row.session for row in ranked}) > 1:
            yield (
                page,
                f"{task}: {len({row.session for row in ranked})} sessions are ranked in one column and no row says so",
            )
        yield from ((page, f"{task}: {what}") for what in _denominators(ranked))
        yield from ((page, f"{task}: {what}") for what in _words(rows, verdict))
        name = re.match(r"The best version, (.*?), is ", verdict)
        best = next((row for row in ranked if name and row.name == name[1]), None)
        yield from ((page, f"{task}: {what}") for what in _sentence(verdict, best.cells if best else {}))


def _denominators(ranked: list[Row]) -> Found:
    """Naive's time over the fastest library's is what it is, whatever version is divided by both, as far as their intervals tell:
    each is of pairs of rounds, and where a version was faster in some rounds than in others, no two quotients agree to a percent.
    """
    low, high = 0.0, math.inf
    for row in ranked:
        over = _ends(row.cells["over naive"])
        rival = _ends(row.cells.get("over library", row.cells.get("over reference", "")))
        if over and rival:
            least, most = over[0] / rival[1], over[1] / max(rival[0], 1e-9)
            if least > high or most < low:
                yield f"{row.name} is divided by another library time than the rows above it"
                return
            low, high = max(low, least), min(high, most)


def _ends(text: str) -> tuple[float, float] | None:
    """Between which the first ratio in a text lies, as rounded there."""
    if (shown := ratio(text)) is None:
        return None
    low, high = interval(text) or (shown.value, shown.value)
    return min(low, shown.value) - shown.unsure, max(high, shown.value) + shown.unsure


def _words(rows: list[Row], verdict: str) -> Found:
    for row in rows:
        if re.match(r"best\b", row.name) and not verdict.startswith(f"The best version, {row.name}, "):
            yield f"a version is called {row.name}, which is not the best"
        if row.name.startswith("straightforward"):
            if row.cells["origin"] == "library":
                yield "straightforward is called a library"
            if "library call" in verdict:
                yield "its sentence calls the reference implementation a library"
        if row.cells.get("bottleneck", "–") != "–" and "=" not in row.cells["bottleneck"]:
            yield f"the bottleneck of {row.name} names no case"


def _sentence(verdict: str, cells: dict[str, str]) -> Found:
    """A sentence has its table's figures, each with its interval."""
    bare = re.sub(r"\([^)]*\)", "", verdict)
    if len(RATIO.findall(bare)) > len(re.findall(rf"× \({NUMBER} to {NUMBER}\)", verdict)):
        yield f"a ratio has no interval in “{verdict}”"
    whoms = [
        ("the naive kernel", "over naive"),
        *((whom, column) for whom in RIVALS for column in ("over library", "over reference")),
    ]
    for whom, column in whoms:
        said, there = said_of(verdict, whom), ratio(cells.get(column, ""))
        if said and there and not said.agrees(there):
            yield f"the sentence has {said.value}× {whom}, the table {there.value}×"
    reached, there_ = (
        re.search(rf"reaches ({NUMBER})\u202f%", verdict),
        re.match(rf"({NUMBER})\u202f%", cells.get("of the roofline", "")),
    )
    if reached and there_ and not number(reached[1]).agrees(number(there_[1])):
        yield f"the sentence has {reached[1]} % of the roofline, the table {there_[1]} %"


def versions(site: Pages) -> Iterator[tuple[str, str]]:
    """A version's sentence has the figures of its row and those that its cases come to."""
    for page, node in site.of("version/"):
        verdict, row = node.first(kind="verdict"), site.rows.get(page)
        if verdict is None or row is None:
            continue
        yield from ((page, what) for what in _sentence(verdict.text, row.cells))
        if "bottleneck" in verdict.text and not re.search(r"on \S*=\S* (?:its bottleneck|it is bound)", verdict.text):
            yield page, "its bottleneck names no case"
        for one in map(table, node.all("table")):
            if one.heads[:2] != ("case", "split"):
                continue
            for column in ("over naive", "over library", "over reference"):
                cells = [ratio(cell.text) for _, each in one.rows if (cell := one.cell(each, column))]
                values = [cell.value for cell in cells if cell]
                whole = ratio(row.cells.get(column, ""))
                if whole and values and len(values) == len(one.rows):
                    mean = math.exp(math.fsum(map(math.log, values)) / len(values))
                    rounding = math.fsum(cell.unsure / cell.value for cell in cells if cell) / len(values)
                    if not whole.agrees(Shown(mean, rounding * mean)):
                        yield page, f"its cases come to {mean:.3g}× {column}, its row has {whole.value}×"


# ------------------------------------------------------------------ the first page and runs


def _tables(node: Node, *heads: str) -> list[Table]:
    return [one for one in map(table, node.all("table")) if set(heads) <= set(one.heads)]


def home(site: Pages) -> Iterator[tuple[str, str]]:
    """The first page's table has the operators' figures, and its headlines are what the table comes to."""
    page, node = "index.html", site.pages["index.html"]
    columns: dict[str, list[float]] = defaultdict(list)
    for one in _tables(node, "operator", "ours over naive"):
        for _, cells in one.rows:
            link = cells[0].first("a")
            task = link.attributes["href"].removeprefix("op/").replace(".html#", "/") if link else ""
            for column in ("ours over naive", "ours over the bar"):
                shown = ratio((one.cell(cells, column) or cells[0]).text)
                if shown:
                    columns[column].append(shown.value)
            ours, verdict = ratio((one.cell(cells, "ours over naive") or cells[0]).text), site.verdicts.get(task, "")
            said = said_of(verdict, "the naive kernel")
            if ours and said and not ours.agrees(said):
                yield page, f"{task}: {ours.value}× here, {said.value}× on the operator's page"
    tiles = (node.first("dl", "figures") or node).all("div")
    for tile in tiles:
        what, value = (tile.first("dt") or tile).text, (tile.first("dd") or tile).text
        if re.search(r"[×%]", value) and not ENDS.search(value):
            yield page, f"the headline {value} has no interval"
        for words, column in (
            ("over the naive", "ours over naive"),
            ("bar", "ours over the bar"),
            ("faster of", "ours over the bar"),
        ):
            shown = ratio(value)
            if words in what and shown and columns[column]:
                mean = math.exp(math.fsum(map(math.log, columns[column])) / len(columns[column]))
                if not shown.agrees(Shown(mean, 0.005 * mean)):
                    yield page, f"the headline {value} “{what}” is {mean:.3g}× by the table"
                break
    for one in _tables(node, "scenario", "tasks"):
        bare = [
            c.text for _, cells in one.rows for c in cells[3:] if re.search(r"[×%]", c.text) and not ENDS.search(c.text)
        ]
        if bare:
            yield page, f"{len(bare)} means of the scenarios have no interval, say {bare[0]}"


def runs(site: Pages) -> Iterator[tuple[str, str]]:
    """A run's sentence, its steps, its chart, the tables of runs and its card have the same figures; predictions are judged."""
    for page, node in [(page, node) for page, node in site.of("run/") if node.all("ol", "story")]:
        verdict = (node.first(kind="verdict") or node).text
        said = said_of(verdict, "where it started")
        yield from ((page, what) for what in _sentence(verdict, {}))
        progress = next(iter(_tables(node, "step", "outcome", "over naive")), None)
        figures = {cells[0].text: cells[2].text for _, cells in progress.rows} if progress else {}
        for other in (other for folder in ("index.html", "op/") for _, other in site.of(folder)):
            for one in _tables(other, "run", "best over its start"):
                for _, cells in one.rows:
                    link, gain = cells[0].first("a"), ratio((one.cell(cells, "best over its start") or cells[0]).text)
                    if link and link.attributes["href"].endswith(page) and said and gain and not said.agrees(gain):
                        yield page, f"{said.value}× where it started, and {gain.value}× in a table of runs"
        if said and figures and not any((one := ratio(text)) and one.agrees(said) for text in figures.values()):
            yield page, f"{said.value}× where it started, and no step has come to that"
        yield from ((page, what) for what in _best_so_far(progress))
        for step in node.all("li"):
            name = step.attributes.get("id", "").removeprefix("step-")
            head = step.first("h3")
            own = re.search(rf"({NUMBER})×(?: \([^)]*\))? naive", head.text) if head else None
            there = ratio(figures.get(name, ""))
            if own and there and not number(own[1]).agrees(there):
                yield page, f"step {name} has {own[1]}× in its head, and {there.value}× in the chart's table"
            yield from ((page, f"step {name}: {what}") for what in _prediction(step.text))


def strategies(site: Pages) -> Iterator[tuple[str, str]]:
    """A run beside those of other strategies has its own page's best figure and author, and a line in the chart."""
    for page, node in site.of("op/"):
        for one in _tables(node, "run", "strategy", "answered by", "best over naive"):
            legends = {
                trace.get("name")
                for figure in node.all("figure")
                if figure.attributes.get("id", "").startswith("strategies-") and (script := figure.first("script"))
                for trace in json.loads(script.raw)["data"]
            }
            for _, cells in one.rows:
                link = cells[0].first("a")
                own = site.pages.get(link.attributes["href"].removeprefix("../")) if link else None
                progress = next(iter(_tables(own, "step", "best so far")), None) if own else None
                if own is None or progress is None:
                    yield page, f"{cells[0].text} beside other strategies has no page with a chart"
                    continue
                best, by = (one.cell(cells, head) or cells[0] for head in ("best over naive", "answered by"))
                there = ratio((progress.cell(progress.rows[-1][1], "best so far") or cells[0]).text)
                here = ratio(best.text)
                if not (here and there and here.agrees(there)):
                    yield page, f"{best.text} beside other strategies, and {there and there.value}× on the run's page"
                said = re.search(r"Written by ([^.]*)\.", (own.first("main") or own).text)
                if said and not by.text.startswith(said[1]):
                    yield page, f"{cells[0].text} is answered by {by.text} here, by {said[1]} on its own page"
                if not any(str(name).startswith(f"{cells[1].text}, answered by ") for name in legends):
                    yield page, f"{cells[0].text} has no line beside other strategies"


def _best_so_far(progress: Table | None) -> Found:
    """It rises where a step improved, and nowhere else."""
    if progress is None:
        return
    if "best so far" not in progress.heads:
        yield "its chart's table does not say what was the best so far"
        return
    last = 0.0
    for _, cells in progress.rows:
        best = ratio((progress.cell(cells, "best so far") or cells[0]).text)
        if best and best.value > last > 0 and cells[1].text != "improved":
            yield f"the best so far rises at step {cells[0].text}, which is {cells[1].text}"
        if best and best.value < last:
            yield f"the best so far falls at step {cells[0].text}"
        last = best.value if best else last


def _prediction(text: str) -> Found:
    """Judged by the interval of what came out."""
    predicted = re.search(rf"Predicted ({NUMBER})×", text)
    word = re.search(r"\b(held|did not hold|undecided)\b", text[predicted.start() :]) if predicted else None
    if predicted is None or word is None:
        return
    came = re.search(
        rf"to hold; measured ({NUMBER})× \(({NUMBER}) to ({NUMBER})\): (held|did not hold|undecided)", text
    )
    if came is None:
        yield f"its prediction {word[1]}, and no interval of what came out says why"
        return
    needed, low, high = math.sqrt(number(predicted[1]).value), number(came[2]).value, number(came[3]).value
    right = "held" if low >= needed else "did not hold" if high < needed else "undecided"
    edge = min(abs(low - needed), abs(high - needed)) < 1e-4
    if number(predicted[1]).value > 1 and came[4] != right and not edge:
        yield f"its prediction {came[4]}, but {came[2]} to {came[3]} where {needed:.4f} is needed is {right}"


# ------------------------------------------------------------------ sessions, authors, proofs


def sessions(site: Pages) -> Iterator[tuple[str, str]]:
    """What a step came to in its own session stands beside the version's figures, and a contradiction is flagged."""
    told: dict[str, set[str]] = defaultdict(set)
    for _, node in site.of("run/"):
        for progress in _tables(node, "step", "outcome", "measured"):
            measured = {
                cells[0].text: (progress.cell(cells, "measured") or cells[0]).text for _, cells in progress.rows
            }
            for step in node.all("li"):
                name = step.attributes.get("id", "").removeprefix("step-")
                for link in step.all("a")[:1] if name in measured and "Version" in step.text else ():
                    told[link.attributes["href"].removeprefix("../")].add(measured[name])
    for page, node in site.of("version/"):
        row = site.rows.get(page)
        shown = _tables(node, "measured", "over naive then", "over naive as shown here")
        known = {cells[0].text for one in shown for _, cells in one.rows}
        elsewhere = {
            cells[0].text: cells[1].text for one in _tables(node, "device", "measured") for _, cells in one.rows
        }
        known |= set(elsewhere.values())
        own = re.search(r"Measured on (.+?) \(driver", node.text)
        evaluations = [
            command.text.strip()
            for one in _tables(node, "when", "executor", "device", "status", "command")
            for _, cells in one.rows
            if (where := one.cell(cells, "executor")) is not None and where.text.strip() == "cuda"
            if (device := one.cell(cells, "device")) is not None and (own is None or device.text.strip() == own[1])
            if (command := one.cell(cells, "command")) is not None and "--without naive" not in command.text
        ]
        links = (re.match(r"\.\./run/(.*)\.html#step-\d+$", a.attributes.get("href", "")) for a in node.all("a"))
        runs = {link[1] for link in links if link}
        # A run screens, profiles and proves a version besides timing it: those are no further sessions.
        beside = len(runs) > 1 or not all(command.startswith("msbench optimize") for command in evaluations)
        score = ratio(row.cells.get("over naive", "")) if row else None
        # Shown with what its step came to, it stands beside that of no other run: what bench found before is superseded.
        step = re.search(r"measured ([\d.]+×)", node.text) if len(runs) == 1 else None
        own_step = bool(step and score and (came_to := ratio(step[1])) and came_to.agrees(score))
        if runs and score and not shown and len(evaluations) > 1 and beside and not own_step:
            yield page, f"it was evaluated {len(evaluations)} times and does not say whether its sessions agree"
        for day in told[page] - {"–"} if row else ():
            # Where it was timed on several devices, a step's session may be another one's.
            apart_in_time = row and day != row.cells.get("measured") and day not in known and not elsewhere
            if apart_in_time and row and ratio(row.cells.get("over naive", "")):
                yield page, f"its step's session of {day} is not compared with what its row shows"
        flagged = False
        for one in shown:
            for _, cells in one.rows:
                then, now = interval(cells[2].text), interval(cells[3].text)
                apart = bool(then and now and (then[1] < now[0] or now[1] < then[0]))
                said = "sessions disagree" in cells[4].text
                flagged = flagged or said
                if apart and not said:
                    yield page, f"{cells[2].text} on {cells[0].text} and {cells[3].text} disagree, and nothing says so"
        if row and ratio(row.cells.get("over naive", "")) and flagged != row.disagrees:
            yield page, "its page and its row differ in whether its sessions disagree"


def authors(site: Pages) -> Iterator[tuple[str, str]]:
    """Who wrote it is said on the page of each run and of each of its versions, in the same words."""
    for page, node in [(page, node) for page, node in site.of("run/") if node.all("ol", "story")]:
        own = re.search(r"Written by ([^.]*)\.", (node.first("main") or node).text)
        if own is None:
            yield page, "it does not say who wrote it"
            continue
        for link in [a for li in node.all("li") for a in li.all("a") if a.attributes["href"].startswith("../version/")]:
            version = site.pages.get(link.attributes["href"].removeprefix("../"))
            row = site.rows.get(link.attributes["href"].removeprefix("../"))
            said = re.search(r"Written by ([^.]*)\.", version.text) if version else None
            if row and row.cells["origin"] == "agent" and (said is None or said[1] != own[1]):
                yield page, f"{row.name} is by {said[1] if said else 'nobody'} on its own page, by {own[1]} here"
        for other in (other for folder in ("index.html", "op/") for _, other in site.of(folder)):
            for one in _tables(other, "run", "written by"):
                for _, cells in one.rows:
                    link = cells[0].first("a")
                    by = (one.cell(cells, "written by") or cells[0]).text
                    if link and link.attributes["href"].endswith(page) and not by.startswith(own[1]):
                        yield page, f"by {own[1]} here, by {by} in a table of runs"


def how(site: Pages) -> Iterator[tuple[str, str]]:
    """Each proportion among the headlines has its interval."""
    node = site.pages.get("how.html")
    for tile in (node.first("dl", "figures") or node).all("div") if node else ():
        value = (tile.first("dd") or tile).text
        if re.match(r"[\d\u202f]+ of \d", value) and not ENDS.search(value):
            yield "how.html", f"the headline {value} has no interval"


if __name__ == "__main__":
    found = complaints(Path(sys.argv[1]))
    print("\n".join(found) or "Nothing contradicts itself.")
    sys.exit(bool(found))
