"""The page itself: its files are plain ES modules, which a browser finds by name through an import map.

The server sends the files one by one. An exported page has each file inside, as a data URL in the same map.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path

WEB = Path(__file__).parent / "web"
PLOT, STYLES = "vendor/uplot.js", ("vendor/uplot.css", "style.css")
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; "


def modules() -> dict[str, str]:
    """The name that an `import` uses, and the file of each module."""
    published = {"preact": "vendor/preact.js", "preact/hooks": "vendor/hooks.js", "htm": "vendor/htm.js"}
    return published | {f"viewer/{path.name}": path.name for path in sorted(WEB.glob("*.js"))}


def served(nonce: str) -> tuple[str, str]:
    """The page as the server sends it, and its content policy: nothing is loaded from elsewhere."""
    table = json.dumps({"imports": {name: f"./web/{file}" for name, file in modules().items()}})
    styles = "\n".join(f'<link rel="stylesheet" href="web/{file}">' for file in STYLES)
    scripts = (
        f'<script src="web/{PLOT}"></script>\n'
        f'<script type="importmap" nonce="{nonce}">{table}</script>\n'
        '<script type="module" src="web/app.js"></script>'
    )
    policy = (
        f"{_NOTHING}script-src 'self' 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "media-src 'self'; connect-src 'self'; frame-ancestors 'none'"
    )
    return _filled("", styles, scripts), policy


def standalone(answers: Mapping[str, bytes]) -> str:
    """A page that needs no server. `answers` has the JSON answer to each question that the page may ask."""
    styles = "\n".join(f"<style>{_text(file)}</style>" for file in STYLES)
    table = json.dumps({"imports": {name: _data_url(file) for name, file in modules().items()}})
    rows = ",\n".join(f"{json.dumps(name)}:{data.decode()}" for name, data in answers.items())
    kept = rows.replace("<", "\\u003c")  # so that no text can end the script
    scripts = (
        f"<script>{_text(PLOT)}</script>\n<script>window.ANSWERS = {{{kept}}};</script>\n"
        f'<script type="importmap">{table}</script>\n<script type="module">import "viewer/app.js";</script>'
    )
    policy = f"{_NOTHING}script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:; media-src data:"
    return _filled(f'<meta http-equiv="Content-Security-Policy" content="{policy}">', styles, scripts)


def _filled(policy: str, styles: str, scripts: str) -> str:
    parts = {"<!--POLICY-->": policy, "<!--STYLES-->": styles, "<!--SCRIPTS-->": scripts}
    text = _text("index.html")
    for mark, part in parts.items():
        before, after = text.split(mark)
        text = before + part + after
    return text


def _text(file: str) -> str:
    return (WEB / file).read_text(encoding="utf-8")


def _data_url(file: str) -> str:
    return "data:text/javascript;charset=utf-8;base64," + base64.b64encode((WEB / file).read_bytes()).decode()
