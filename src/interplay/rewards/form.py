"""The outer form of a mathematical answer: a quantity, a pair, a set, an interval, a matrix, an equation, a list.

Forms are compared part by part, so `(1, 2)` differs from `\\{1, 2\\}`, `[2, 5)` equals `2 \\le x < 5`, and `1011_2`
differs from `1011`. Only formulas without such a form are compared by algebra (see verify.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from interplay.rewards.certainty import asserted
from interplay.rewards.latex import ROW, closing, plain, split
from interplay.rewards.quantity import Quantity, quantity, without_unit
from interplay.rewards.reply import tidy

Kind = Literal["quantity", "formula", "text", "ordered", "set", "list", "union", "matrix", "ratio", "based", "relation"]
DEEPEST = 6  # how deep forms may be nested

_VARIABLE = re.compile(r"(?:[A-Za-zα-ωΑ-Ω]|\\[A-Za-z]+)(?:_\{?\w{1,4}\}?)?'*")
_NAME = re.compile(
    r"(?:\\?[A-Za-zα-ωΑ-Ω]\w{0,12}(?:_\{?\w{1,4}\}?)?'*|⟦[^⟦⟧]{1,30}⟧|\\angle\s*[A-Z]{1,3})(?:\s*\([^()=]{0,20}\))?"
    r"|\((?:\s*[A-Za-z]\w?\s*,){1,4}\s*[A-Za-z]\w?\s*\)"  # the (x, y) of (x, y) = (1, 2)
)
_SEPARATED = r",(?!\d{3}(?!\d))|,(?=\s)|;|⟦\s*,?\s*(?:and|or)\s*⟧|\s(?:and|or)\s|\\(?:lor|vee|land|wedge)(?![A-Za-z])"
_COMMAS = r",|;"
_SIGNS = r"≤|≥|≠|<|>"
_BASED = re.compile(r"\(?([0-9][0-9A-Fa-f]*)\)?\s*_\s*\{?\s*(?:⟦\s*)?(\d{1,2}|[a-z]{3,8})(?:\s*⟧)?\s*\}?")
_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_MATRIX = re.compile(r"\\begin\{(?:[pbB]?matrix|array|smallmatrix)\}(?:\{[lcr|]*\})?(.*)\\end\{\w+\}", re.DOTALL)
_WORDS = re.compile(r"[A-Za-z][A-Za-z '\-]*")


@dataclass(frozen=True)
class Form:
    """`text` is a formula or words; for an ordered form, its brackets; for a number with a base, its base."""

    kind: Kind
    text: str = ""
    parts: tuple[Form, ...] = ()
    quantity: Quantity | None = None
    unit: str = ""  # the unit of a formula
    name: str = ""  # the x in x = 3


@lru_cache(maxsize=20_000)
def forms(text: str) -> tuple[Form, ...]:
    """What a text can mean: usually one form, but `1,234` is a number and a list. Empty if it means nothing."""
    text = plain(tidy(asserted(text)))
    found = [form for form in (_form(text, 0), _listed(text)) if form is not None]
    return tuple(dict.fromkeys(found))


def _listed(text: str) -> Form | None:
    """A list whose commas could also separate thousands."""
    if not re.fullmatch(r"-?\d{1,3}(?:,\d{3})+", text):
        return None
    return Form("list", parts=tuple(Form("quantity", part, quantity=quantity(part)) for part in text.split(",")))


def _form(text: str, depth: int) -> Form | None:
    text = text.strip(" ,;:").rstrip(". ")
    if not text or depth > DEEPEST:
        return None
    inner = _unwrapped(text)
    if inner != text:
        return _form(inner, depth + 1)
    if (found := quantity(text)) is not None:
        return Form("quantity", text, quantity=found)
    for read in (
        _based,
        _empty,
        _several,
        _membership,
        _relation,
        _equation,
        _union,
        _bracketed,
        _matrix,
        _ratio,
        _signed,
    ):
        made = read(text, depth + 1)
        if made is not None:
            return made
    words = text.strip("⟦⟧ ").strip("()").strip()
    if _WORDS.fullmatch(words) and (len(words) > 1 or text != words):
        return Form("text", " ".join(words.casefold().split()))
    formula, unit = without_unit(text)
    return Form("formula", formula, unit=unit)


def _unwrapped(text: str) -> str:
    """The text without the group, text command or round brackets around it, if they contain a single thing."""
    if re.fullmatch(r"⟦[^⟦⟧]*⟧", text):
        return text[1:-1].strip()
    if text.startswith("{") and not text.startswith("{@") and closing(text, 0) == len(text) - 1:
        return text[1:-1].strip()
    if text.startswith("(") and not text.startswith("(@") and text.endswith(")") and closing(text, 0) == len(text) - 1:
        inside = text[1:-1].strip()
        if len(split(inside, _COMMAS)) == 1 and not re.fullmatch(r"[A-Za-z]", inside):
            return inside
    return text


def _parts(texts: list[str], depth: int) -> tuple[Form, ...] | None:
    made = [_form(text, depth) for text in texts]
    return None if any(form is None for form in made) else tuple(form for form in made if form is not None)


def _based(text: str, depth: int) -> Form | None:
    found = _BASED.fullmatch(text)
    if found is None:
        return None
    base = int(found[2]) if found[2].isdecimal() else _BASES.get(found[2], 0)
    if base == 10:
        return _form(found[1], depth)
    return Form("based", f"{found[1].upper().lstrip('0')}_{base}") if base else None


def _empty(text: str, depth: int) -> Form | None:
    return Form("set") if text == "∅" or re.fullmatch(r"\{@\s*@\}|\{\s*\}", text) else None


def _several(text: str, depth: int) -> Form | None:
    """`1, 2`, `x = 1 or x = 2`, `x < -1 or x > 1`."""
    pieces = split(text, _SEPARATED)
    if len(pieces) == 1:
        return None
    made = _parts([piece for _, piece in pieces if piece], depth)
    if made is None or len(made) < 2:
        return None
    intervals = all(_interval(part) for part in made)
    return Form("union" if intervals and any(re.search(_SIGNS, piece) for _, piece in pieces) else "list", parts=made)


def _membership(text: str, depth: int) -> Form | None:
    """`x \\in S` means S, and `\\{x \\mid x > 3\\}` means x > 3."""
    pieces = split(text, "∈")
    if len(pieces) == 2 and _VARIABLE.fullmatch(pieces[0][1]):
        return _form(pieces[1][1], depth)
    built = re.fullmatch(r"\{@\s*(\\?[A-Za-z])(?:\s*∈\s*\S+?)?\s*[|:]\s*(.+?)\s*@\}", text)
    return _form(built[2], depth) if built and re.search(_SIGNS, built[2]) else None


def _relation(text: str, depth: int) -> Form | None:
    """An inequality as an interval, if it bounds one variable; otherwise unchanged."""
    pieces = split(text, _SIGNS)
    if len(pieces) == 1:
        return None
    signs, sides = [sign for sign, _ in pieces[1:]], [side for _, side in pieces]
    relation = Form("relation", "".join(f"{sign}{_squeezed(side)}" for sign, side in pieces))
    if "≠" in signs or any(not side for side in sides) or len(sides) > 3:
        return relation
    if len(sides) == 2 and _VARIABLE.fullmatch(sides[1]):
        sides, signs = sides[::-1], ["≤≥<>"["≥≤><".index(signs[0])]]
    if len(sides) == 3 and signs[0] in ">≥" and signs[1] in ">≥":
        sides, signs = sides[::-1], ["≤≥<>"["≥≤><".index(sign)] for sign in signs[::-1]]
    variable = sides[0] if len(sides) == 2 else sides[1]
    bounds = [side for side in sides if side is not variable]
    if not _VARIABLE.fullmatch(variable) or any(re.search(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])", b) for b in bounds):
        return relation
    if len(sides) == 2:
        ends, brackets = (["-∞", bounds[0]], "(" + ")]"[signs[0] == "≤"])
        if signs[0] in ">≥":
            ends, brackets = [bounds[0], "∞"], "(["[signs[0] == "≥"] + ")"
    elif signs[0] in "<≤" and signs[1] in "<≤":
        ends, brackets = bounds, "(["[signs[0] == "≤"] + ")]"[signs[1] == "≤"]
    else:
        return relation
    made = _parts(ends, depth)
    return None if made is None else Form("ordered", brackets, made)


def _equation(text: str, depth: int) -> Form | None:
    """`x = 3` is 3 with a name; `6 * 7 = 42` is a chain in which every side must be right."""
    sides = [side for _, side in split(text, "=")]
    if len(sides) == 1:
        return None
    if not all(sides):
        return Form("relation", _squeezed(text))
    name = _squeezed(sides[0]) if _NAME.fullmatch(sides[0]) and quantity(sides[0]) is None else ""
    made = _parts(sides[1:] if name else sides, depth)
    if made is None:
        return None
    if name and len(made) == 1:
        return replace(made[0], name=name)
    letters = [bool(re.search(r"(?<![\\A-Za-z⟦])[A-Za-z](?![A-Za-z])", side)) for side in sides]
    if not name and any(letters):
        return Form("formula", text)
    return Form("relation", "=", made, name=name)


def _union(text: str, depth: int) -> Form | None:
    pieces = [piece for _, piece in split(text, "∪")]
    made = _parts(pieces, depth) if len(pieces) > 1 else None
    return None if made is None else Form("union", parts=made)


def _bracketed(text: str, depth: int) -> Form | None:
    """`(1, 2)`, `[0, 1)` and `\\langle 1, 2 \\rangle` have an order, `\\{1, 2\\}` has none."""
    for opened, closed in (("{@", "@}"), ("(@", "@)")):
        if text.startswith(opened) and text.endswith(closed) and closing(text, 0) == len(text) - 1:
            made = _parts([piece for _, piece in split(text[2:-2], _COMMAS)], depth)
            return None if made is None else Form("set" if opened == "{@" else "ordered", "()", made)
    if text[0] in "{([" and text[-1] in "})]" and closing(text, 0) == len(text) - 1:
        pieces = [piece for _, piece in split(text[1:-1], _COMMAS)]
        if len(pieces) > 1 and (made := _parts(pieces, depth)) is not None:
            return Form("set", parts=made) if text[0] == "{" else Form("ordered", text[0] + text[-1], made)
    return None


def _matrix(text: str, depth: int) -> Form | None:
    found = _MATRIX.fullmatch(text.strip("()[] "))
    if found is None:
        return None
    rows = [row for row in found[1].split(ROW) if row.strip()]
    made = [_parts([cell.strip() for cell in row.split("&")], depth) for row in rows]
    if any(row is None for row in made):
        return None
    return Form("matrix", parts=tuple(Form("ordered", "", row) for row in made if row is not None))


def _ratio(text: str, depth: int) -> Form | None:
    pieces = [piece for _, piece in split(text, ":")]
    if len(pieces) == 1 or not all(pieces):
        return None
    made = _parts(pieces, depth)
    return None if made is None else Form("ratio", parts=made)


def _signed(text: str, depth: int) -> Form | None:
    """`\\pm 3` is the two numbers 3 and -3."""
    if "±" not in text:
        return None
    made = _parts([text.replace("±", "+").lstrip("+ "), text.replace("±", "-")], depth)
    return None if made is None else Form("list", parts=made)


def _interval(form: Form) -> bool:
    return form.kind in ("ordered", "union") and not form.name


def _squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)
