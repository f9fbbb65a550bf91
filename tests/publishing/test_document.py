"""Pages of studies: every text is escaped, and pictures are inside the page."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

from interplay.publishing.document import (
    Bullets,
    Figure,
    Heading,
    PageBlock,
    Paragraph,
    TableBlock,
    to_html,
    to_slides,
    write_pdf,
)

ODD = "a <b> & {{ title }} {% raw %} it's `c<d`"
SHOWN = "a &lt;b&gt; &amp; {{ title }} {% raw %} it's <code>c&lt;d</code>"


def test_every_kind_of_block_is_written_and_nothing_in_it_is_markup(tmp_path: Path) -> None:
    (tmp_path / "plot.svg").write_text("<svg/>")
    blocks: list[PageBlock] = [
        Heading(ODD, 3),
        Paragraph(ODD),
        Bullets((ODD, "two")),
        TableBlock((ODD, "n"), ((ODD * 2, "1"),)),
        Figure("plot", ODD),
    ]
    wanted = [
        f"<h3>{SHOWN}</h3>",
        f"<p>{SHOWN}</p>",
        f"<ul><li>{SHOWN}</li><li>two</li></ul>",
        f'<table><tr><th>{SHOWN}</th><th>n</th></tr><tr><td>{SHOWN * 2}</td><td class="short">1</td></tr></table>',
        '<figure><img alt="a &lt;b&gt; &amp; {{ title }} {% raw %} it&#x27;s `c&lt;d`" '
        f'src="data:image/svg+xml;base64,PHN2Zy8+"><figcaption>{SHOWN}</figcaption></figure>',
    ]
    page = to_html("A & B", blocks, tmp_path)
    assert page.endswith("<body>\n<h1>A &amp; B</h1>\n" + "\n".join(wanted) + "\n</body></html>\n")
    slides = to_slides("A & B", [blocks[:2], blocks[2:]], tmp_path)
    sections = f"<section>{wanted[0]}\n{wanted[1]}</section>\n<section>" + "\n".join(wanted[2:]) + "</section>"
    assert slides.endswith(f"<body>\n{sections}\n</body></html>\n") and "<title>A &amp; B</title>" in slides


def test_a_narrow_column_of_a_pdf_does_not_break_a_name(tmp_path: Path) -> None:
    """A slide said "smollm2-negotiatio" and, on the next line, "n"."""
    pytest.importorskip("fpdf")
    row = (
        "smollm2-negotiation",
        "two writers add sentences in turn",
        "writers of several styles",
        "own share, minus inequality and retreats",
    )
    table = TableBlock(("setting", "task", "context agents", "gold"), (row,))
    write_pdf(tmp_path / "slides.pdf", "t", [[Heading("Settings"), table]], tmp_path, slides=True)
    found = re.findall(rb"stream\n(.*?)\nendstream", (tmp_path / "slides.pdf").read_bytes(), re.DOTALL)
    assert b"(smollm2-negotiation)" in b"".join(zlib.decompress(one) for one in found if one.startswith(b"x"))
