"""Pages of every type of a built site as a reader sees them: light, dark, on a phone, printed; and what axe-core finds there.

    python -m tests.browser.look --site site --out build/look

Exit code 1 if axe-core finds anything. Of each type the longest page and the shortest are taken.
"""

from __future__ import annotations

import argparse
import base64
import sys
import tempfile
from pathlib import Path

from tests.browser.accessibility import findings
from tests.browser.reader import Reader, chromium, missing

LOOKS = {"light": (1280, False), "dark": (1280, True), "phone": (390, False), "phone-dark": (390, True)}
"""Width in CSS pixels, and whether the system's theme is dark."""
_TALLEST = 16_000  # CSS pixels: Chromium's own limit to an image


def page_types(site: Path) -> dict[str, list[str]]:
    """The pages that stand for each type, relative to the site."""
    types: dict[str, list[Path]] = {}
    for page in sorted(site.rglob("*.html")):
        name = page.relative_to(site).parts[0] if page.parent != site else page.stem
        types.setdefault("conversation" if name == "run" and "-step-" in page.name else name, []).append(page)
    chosen = {name: {max(p, key=_bytes), min(p, key=_bytes)} for name, p in types.items()}
    return {name: sorted(page.relative_to(site).as_posix() for page in p) for name, p in chosen.items()}


def _bytes(page: Path) -> int:
    return page.stat().st_size


def photograph(reader: Reader, target: Path) -> None:
    """The whole page that is open, as a PNG."""
    _, _, width, height = reader.js(
        "const e = document.documentElement; return [0, 0, innerWidth, Math.min(e.scrollHeight, arguments[0])]",
        _TALLEST,
    )
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = reader.window.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    target.write_bytes(base64.b64decode(shot["data"]))


def print_out(reader: Reader, target: Path) -> None:
    """The page that is open on A4 paper, as a PDF, and as one long PNG."""
    reader.screen(720)  # which sets the medium, too
    reader.window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    photograph(reader, target.with_suffix(".png"))
    reader.window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    size = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": False}
    printed = reader.window.execute_cdp_cmd("Page.printToPDF", size)
    target.write_bytes(base64.b64decode(printed["data"]))


def main() -> int:
    parser = argparse.ArgumentParser(description="Screenshots of every page type, and axe-core's findings there.")
    parser.add_argument("--site", type=Path, default=Path("site"))
    parser.add_argument("--out", type=Path, default=Path("build/look"))
    parser.add_argument("--types", help="only these types of pages, joined by commas")
    given = parser.parse_args()
    if missing():
        parser.error(missing())
    given.out.mkdir(parents=True, exist_ok=True)
    report: list[str] = []
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as window:
        reader = Reader(window, given.site.resolve())
        for kind, pages in page_types(given.site).items():
            if given.types and kind not in given.types.split(","):
                continue
            for number, page in enumerate(pages, 1):
                name = f"{kind}-{number}" if len(pages) > 1 else kind
                for look, (width, dark) in LOOKS.items():
                    reader.screen(width, dark=dark)
                    reader.open(page)
                    reader.draw_all()
                    reader.js("scrollTo(0, 0)")
                    photograph(reader, given.out / f"{name}-{look}.png")
                    if look == "light":
                        print_out(reader, given.out / f"{name}-print.pdf")
                    report += [f"{page} ({look}): {one}" for one in findings(reader)]
                print(f"{name}: {page}", flush=True)
    (given.out / "axe.txt").write_text("".join(f"{line}\n" for line in report), encoding="utf-8")
    print(*report, f"axe-core: {len(report)} findings; everything is in {given.out}", sep="\n")
    return 1 if report else 0


if __name__ == "__main__":
    sys.exit(main())
