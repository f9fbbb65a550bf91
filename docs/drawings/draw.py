"""Draws every .mmd file of this folder as an SVG: python docs/drawings/draw.py MERMAID.min.js

The drawings are stored, so that no page loads a script from another host. Mermaid's script is in its npm package
(npm pack mermaid, dist/mermaid.min.js). It runs in chromium, by playwright.
"""

from __future__ import annotations

import math
import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
SETTINGS = "{startOnLoad: false, theme: 'neutral', htmlLabels: false, flowchart: {htmlLabels: false}}"


def main(script: Path) -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.set_content("<body></body>")
        page.add_script_tag(path=script)
        page.evaluate(f"mermaid.initialize({SETTINGS})")
        for source in sorted(HERE.glob("*.mmd")):
            text = source.read_text(encoding="utf-8")
            svg = page.evaluate("async ([name, text]) => (await mermaid.render(name, text)).svg", [source.stem, text])
            wide, high = (math.ceil(float(n)) for n in re.findall(r'viewBox="\S+ \S+ (\S+) (\S+)"', svg)[0])
            # At its own size, and with white behind it, so that it can also be read on a dark page.
            svg = svg.replace('width="100%"', f'width="{wide}" height="{high}"', 1)
            svg = svg.replace('style="', 'style="background: #fff; ', 1)
            source.with_suffix(".svg").write_text(svg + "\n", encoding="utf-8")
            print(source.with_suffix(".svg").name, len(svg))
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
