"""A document as blocks, written as Markdown, as one HTML page, as HTML slides and as a PDF."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from interplay.errors import ConfigError


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: tuple[str, ...]


@dataclass(frozen=True)
class TableBlock:
    """A table."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Figure:
    """A picture in the folder of the page: `name`.svg for HTML and Markdown, `name`.png for PDFs."""

    name: str
    caption: str


_SHORT = 32  # characters of a cell that is not broken into lines

PageBlock = Heading | Paragraph | Bullets | TableBlock | Figure


def to_text(blocks: Sequence[PageBlock]) -> str:
    """Return all text of the blocks, so that its numbers can be checked."""
    return to_markdown("", blocks)


def to_markdown(title: str, blocks: Sequence[PageBlock]) -> str:
    out = [f"# {title}"] if title else []
    for block in blocks:
        match block:
            case Heading(text, level):
                out.append(f"{'#' * level} {text}")
            case Paragraph(text):
                out.append(text)
            case Bullets(items):
                out.append("\n".join(f"- {item}" for item in items))
            case TableBlock(header, rows):
                lines = [header, tuple("---" for _ in header), *rows]
                out.append("\n".join("| " + " | ".join(cells) + " |" for cells in lines))
            case Figure(name, caption):
                out.append(f"![{caption}]({name}.svg)\n\n*{caption}*")
    return "\n\n".join(out) + "\n"


_STYLE = """
body { font: 17px/1.55 Georgia, serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #1d2430; }
h1, h2, h3, th { font-family: system-ui, sans-serif; line-height: 1.25; }
table { border-collapse: collapse; font: 12.5px/1.4 system-ui, sans-serif; display: block; overflow-x: auto; }
td.short { white-space: nowrap; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #d5d9e0; text-align: left; }
figure { margin: 1.5rem 0; } figcaption { font-size: 14px; color: #596273; } img { max-width: 100%; }
code { background: #f1f3f6; padding: 0 .2em; }
"""
_SLIDES = """
body { margin: 0; background: #e8ebf0; font: 20px/1.4 system-ui, sans-serif; color: #1d2430; }
section { background: white; width: 960px; min-height: 540px; margin: 1.5rem auto; padding: 2.5rem 3rem;
  box-sizing: border-box; page-break-after: always; }
h1, h2 { margin-top: 0; color: #16365c; } table { font-size: 14.5px; border-collapse: collapse; }
td.short { white-space: nowrap; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #d5d9e0; text-align: left; }
img { max-width: 100%; max-height: 360px; } figure { margin: 0; } figcaption { font-size: 15px; color: #596273; }
"""


def to_html(title: str, blocks: Sequence[PageBlock], folder: Path) -> str:
    """Return one HTML page that contains its pictures."""
    body = "\n".join(_html(b, folder) for b in blocks)
    return _page(title, _STYLE, f"<h1>{html.escape(title)}</h1>\n{body}")


def to_slides(title: str, slides: Sequence[Sequence[PageBlock]], folder: Path) -> str:
    """Return a page with one section for each slide. When it is printed, each slide is on its own sheet."""
    body = "\n".join("<section>" + "\n".join(_html(b, folder) for b in slide) + "</section>" for slide in slides)
    return _page(title, _SLIDES, body)


def _page(title: str, style: str, body: str) -> str:
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head = f"{meta}<title>{html.escape(title)}</title>"
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{style}</style></head><body>\n{body}\n</body></html>\n'


def _inline(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text, quote=False))


def _html(block: PageBlock, folder: Path) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{_inline(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{_inline(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"
        case TableBlock(header, rows):
            top = "".join(f"<th>{_inline(c)}</th>" for c in header)
            rest = "".join("<tr>" + "".join(_cell(c) for c in row) + "</tr>" for row in rows)
            return f"<table><tr>{top}</tr>{rest}</table>"
        case Figure(name, caption):
            data = base64.b64encode((folder / f"{name}.svg").read_bytes()).decode()
            image = f'<img alt="{html.escape(caption)}" src="data:image/svg+xml;base64,{data}">'
            return f"<figure>{image}<figcaption>{_inline(caption)}</figcaption></figure>"


def _cell(text: str) -> str:
    """A cell; numbers and names stay on one line."""
    kind = ' class="short"' if len(text) <= _SHORT else ""
    return f"<td{kind}>{_inline(text)}</td>"


def write_pdf(path: Path, title: str, pages: Sequence[Sequence[PageBlock]], folder: Path, slides: bool = False) -> None:
    """Write a PDF with A4 sheets, or with `slides` one wide sheet for each of `pages`."""
    try:
        from fpdf import FPDF
    except ImportError:
        raise ConfigError("a PDF needs fpdf2: pip install 'interplay[publish]'.") from None
    pdf = FPDF("landscape", "mm", (135, 240)) if slides else FPDF("portrait", "mm", "A4")
    pdf.set_margin(14 if slides else 22)
    pdf.set_auto_page_break(True, 14)
    pdf.set_title(title)
    pdf.creation_date = datetime(2000, 1, 1, tzinfo=UTC)  # the same runs give the same file, whenever it is written
    for page in pages:
        pdf.add_page()
        if slides and isinstance(page[0], Heading) and page[0].level == 1:
            pdf.set_y(pdf.h * 0.34)  # the title of the talk
        for block in page:
            _draw(pdf, block, folder, 14 if slides else 10, slides)
    pdf.output(str(path))


def _latin(text: str) -> str:
    """Replace characters that the built-in fonts of a PDF do not have: they only have Latin letters."""
    for strange, plain in (("−", "-"), ("–", "-"), ("“", '"'), ("”", '"'), ("’", "'"), ("β", "beta"), ("`", "")):
        text = text.replace(strange, plain)
    return text.encode("latin-1", "replace").decode("latin-1")


def _draw(pdf: Any, block: PageBlock, folder: Path, size: int, slides: bool) -> None:
    width, plain = pdf.w - pdf.l_margin - pdf.r_margin, "Helvetica" if slides else "Times"
    match block:
        case Heading(text, level):
            points = size + {1: 10, 2: 4}.get(level, 1)
            pdf.set_font("Helvetica", "B", points)
            pdf.set_text_color(22, 54, 92)
            pdf.multi_cell(width, points * 0.43, _latin(text), new_x="LMARGIN", new_y="NEXT", align="L")
            pdf.set_text_color(0, 0, 0)
            pdf.ln(2)
        case Paragraph(text):
            pdf.set_font(plain, "", size)
            pdf.multi_cell(width, size * 0.46, _latin(text), new_x="LMARGIN", new_y="NEXT", align="L")
            pdf.ln(2)
        case Bullets(items):
            pdf.set_font(plain, "", size)
            for item in items:
                pdf.multi_cell(width, size * 0.48, _latin(f"-  {item}"), new_x="LMARGIN", new_y="NEXT", align="L")
            pdf.ln(2)
        case TableBlock(header, rows):
            _draw_table(pdf, (header, *rows), width, size)
        case Figure(name, caption):
            wide, high = _pixels(folder / f"{name}.png")
            room = pdf.h - 2 * pdf.t_margin - 24 if slides else pdf.h  # on a slide: under a heading, above the caption
            drawn = min(width, room * wide / high)
            pdf.image(str(folder / f"{name}.png"), x=pdf.l_margin + (width - drawn) / 2, w=drawn)
            pdf.set_font("Helvetica", "I", size - 2)
            pdf.multi_cell(width, size * 0.45, _latin(caption), new_x="LMARGIN", new_y="NEXT", align="L")
            pdf.ln(2)


def _pixels(path: Path) -> tuple[int, int]:
    """The width and height of a picture."""
    from PIL import Image  # comes with fpdf2

    with Image.open(path) as picture:
        return picture.size


def _draw_table(pdf: Any, rows: Sequence[tuple[str, ...]], width: float, size: int) -> None:
    """Columns are as wide as their texts; long texts wrap, and numbers stay on one line."""
    pdf.set_font("Helvetica", "", size - 2.5)
    pdf.set_draw_color(190, 196, 206)
    columns = range(len(rows[0]))
    wide = [max(pdf.get_string_width(_latin(row[i])) for row in rows) + 4 for i in columns]
    sizes = tuple(min(0.4 * width, one) for one in wide)
    layout = {"borders_layout": "HORIZONTAL_LINES", "text_align": "LEFT", "col_widths": sizes}
    with pdf.table(width=width, line_height=size * 0.46, **layout) as table:
        for cells in rows:
            row = table.row()
            for cell in cells:
                row.cell(_latin(cell))
    pdf.ln(3)
