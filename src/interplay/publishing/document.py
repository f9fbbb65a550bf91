"""A document as blocks, written as Markdown, as one HTML page, as HTML slides and as a PDF. The HTML is in
`templates/`."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

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


_PAGES = Environment(loader=PackageLoader("interplay.publishing"), autoescape=True, undefined=StrictUndefined)


def to_html(title: str, blocks: Sequence[PageBlock], folder: Path) -> str:
    """Return one HTML page that contains its pictures."""
    return _page("page.html", title, blocks=blocks, folder=folder)


def to_slides(title: str, slides: Sequence[Sequence[PageBlock]], folder: Path) -> str:
    """Return a page with one section for each slide. When it is printed, each slide is on its own sheet."""
    return _page("slides.html", title, slides=slides, folder=folder)


def _page(template: str, title: str, **parts: Any) -> str:
    return _PAGES.get_template(template).render(title=title, short=_SHORT, **parts) + "\n"


def _words(text: str) -> Markup:
    """A text as HTML, with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text, quote=False)))


def _picture(name: str, folder: Path) -> str:
    return base64.b64encode((folder / f"{name}.svg").read_bytes()).decode()


_PAGES.filters |= {
    "words": _words,
    "plain": lambda text: Markup(html.escape(text)),
    "picture": _picture,
    "kind": lambda block: type(block).__name__,
}


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
    """Columns are as wide as their texts. If there is too little room, texts wrap between words."""
    pdf.set_font("Helvetica", "", size - 2.5)
    pdf.set_draw_color(190, 196, 206)
    columns = range(len(rows[0]))

    def widest(parts: Sequence[str]) -> float:
        return max(float(pdf.get_string_width(_latin(part))) for part in parts) + 4

    word = [widest([part for row in rows for part in row[i].split(" ")]) for i in columns]
    wide = [max(word[i], min(0.4 * width, widest([row[i] for row in rows]))) for i in columns]
    share = (width - sum(word)) / max(1.0, sum(wide) - sum(word))  # of what the columns want beyond their longest word
    sizes = tuple(w + (x - w) * min(1.0, max(0.0, share)) for w, x in zip(word, wide, strict=True))
    layout = {"borders_layout": "HORIZONTAL_LINES", "text_align": "LEFT", "col_widths": sizes}
    with pdf.table(width=width, line_height=size * 0.46, **layout) as table:
        for cells in rows:
            row = table.row()
            for cell in cells:
                row.cell(_latin(cell))
    pdf.ln(3)
