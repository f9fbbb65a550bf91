"""Rewrites LaTeX and plain text, which can be written in many ways, in one common notation, before it is parsed.

`plain` removes commands for spacing, size and style, writes fractions and roots with braces, and writes relations and a
few names as single characters: ≤ ≥ ≠ ∪ ∩ ∈ ∞ ∅ π ±. Words in `\\text{…}` become ⟦…⟧, so that a unit differs from a
product of letters. `latex` writes such a text as LaTeX for a parser.
"""

from __future__ import annotations

import re

TEXT = re.compile(r"⟦([^⟦⟧]*)⟧")
ROW = "¶"  # ends a row of a matrix; in LaTeX this is `\\\\`

_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("−–﹣", "-"), **dict.fromkeys("×⋅·∗", "*"), **dict.fromkeys("÷⁄∕", "/"),
        **dict.fromkeys("\u2009\u00a0\u202f", " "), **dict.fromkeys("′’", "'"), "⌀": "∅", "°": "^\\circ ",
    }
)  # fmt: skip
_COMMANDS = {
    "≤": r"leqslant|leqq|leq|le", "≥": r"geqslant|geqq|geq|ge", "≠": r"neq|ne", "<": r"lt", ">": r"gt", "∪": r"cup",
    "∩": r"cap", "∈": r"in", "∞": r"infty", "∅": r"varnothing|emptyset", "π": r"pi", "±": r"pm", "*": r"cdot|times|ast",
    "/": r"div", "|": r"mid|vert", "{@": r"lbrace", "@}": r"rbrace", "(@": r"langle", "@)": r"rangle",
}  # fmt: skip
_NAMED = [(re.compile(rf"\\(?:{names})(?![A-Za-z])"), character) for character, names in _COMMANDS.items()]
_STYLE = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|scriptstyle|limits|nolimits|boldsymbol|bm)(?![A-Za-z])"
)
_WORDS = re.compile(r"\\(?:text|textbf|textit|textrm|textsf|mathrm|mathbf|mathit|mathsf|mbox|hbox|rm)\s*\{([^{}]*)\}")
_FRACTION = re.compile(r"\\[dtc]?frac(?![A-Za-z])\s*")
_OVER = re.compile(r"\{\s*([^{}]*?)\s*\\over(?![A-Za-z])\s*([^{}]*?)\s*\}")
_ROOT = re.compile(r"\\sqrt(?![A-Za-z])\s*(\[[^\]]*\])?\s*")
_CALLED_ROOT = re.compile(r"(?<![A-Za-z\\])sqrt\s*\(")
_GROUPED = re.compile(r"(?<=\d)(?:\\,|\{,\}|,\\!|\\!,|\{\\,\})(?=\d{3}(?!\d))")


def plain(text: str) -> str:
    """The text in the common notation.

    >>> plain("\\\\dfrac12 \\\\leq x"), plain("5\\\\text{ cm}"), plain("$\\\\left[ 2, \\\\infty \\\\right)$")
    ('\\\\frac{1}{2} ≤ x', '5⟦ cm⟧', '[ 2, ∞ )')
    """
    text = _without_signs(text.translate(_CHARACTERS).replace("\\\\", ROW))
    text = _GROUPED.sub("", text)
    text = re.sub(r"\\[!]", "", text)
    text = re.sub(r"\\(?:[,;: ]|quad(?![A-Za-z])|qquad(?![A-Za-z]))|~", " ", text)
    while (changed := _WORDS.sub(lambda m: f"⟦{m[1]}⟧", text)) != text:
        text = changed
    text = _STYLE.sub(" ", text)
    text = text.replace("\\{", "{@").replace("\\}", "@}")
    for pattern, character in _NAMED:
        text = pattern.sub(lambda _, c=character: f"{c} " if c.isalpha() else c, text)  # type: ignore[misc]
    text = re.sub(r"(?<![A-Za-z\\])(?:pi|Pi)(?![A-Za-z])", "π", text)
    text = re.sub(r"(?<![A-Za-z\\])(?:infinity|inf|oo)(?![A-Za-z])", "∞", text)
    text = re.sub(r"\\log_\{?e\}?(?![A-Za-z])", r"\\ln", text)
    text = _OVER.sub(r"\\frac{\1}{\2}", text)
    text = _braced(text, _FRACTION, 2, "\\frac")
    text = _braced(_called_roots(text), _ROOT, 1, "\\sqrt")
    return " ".join(text.split())


def latex(text: str) -> str:
    """Convert the output of `plain` to LaTeX for a parser."""
    text = TEXT.sub(lambda m: f"\\text{{{m[1]}}}", text)
    text = text.replace(ROW, "\\\\").replace("{@", "\\{").replace("@}", "\\}").replace("(@", "(").replace("@)", ")")
    for character, command in (
        ("≤", "\\le "), ("≥", "\\ge "), ("≠", "\\ne "), ("∪", "\\cup "), ("∩", "\\cap "), ("∈", "\\in "),
        ("∞", "\\infty "), ("∅", "\\emptyset "), ("π", "\\pi "), ("±", "\\pm "), ("*", " \\cdot "),
    ):  # fmt: skip
        text = text.replace(character, command)
    # Degrees inside a formula, as in \sin 45^\circ, become fractions of pi.
    return re.sub(r"(\d+(?:\.\d+)?)\s*\^\s*\{?\s*\\circ\s*\}?", r"\\frac{\1\\pi}{180}", text)


def _without_signs(text: str) -> str:
    """The text without the signs that begin and end mathematics. A single $ is a currency."""
    text = re.sub(r"\\[()\[\]]", " ", text).replace("\\$", "＄")
    if text.count("$") % 2 == 0:
        text = text.replace("$", " ")
    return text.replace("＄", "$")


def _called_roots(text: str) -> str:
    """Write `sqrt(5)` as a command with braces."""
    while (found := _CALLED_ROOT.search(text)) is not None:
        end = closing(text, found.end() - 1)
        if end is None:
            return text
        text = f"{text[: found.start()]}\\sqrt{{{text[found.end() : end]}}}{text[end + 1 :]}"
    return text


def _braced(text: str, command: re.Pattern[str], count: int, name: str) -> str:
    """Write braces around the arguments of every such command: `\\frac12` becomes `\\frac{1}{2}`."""
    out, rest = "", text
    while (found := command.search(rest)) is not None:
        out += rest[: found.start()] + name + ((found.groups() or ("",))[0] or "")
        rest = rest[found.end() :]
        for _ in range(count):
            rest = rest.lstrip()
            if rest.startswith("{") and (end := closing(rest, 0)) is not None and not rest.startswith("{@"):
                argument, rest = rest[1:end], rest[end + 1 :]
            elif token := re.match(r"\\[A-Za-z]+|\S", rest):
                argument, rest = token[0], rest[token.end() :]
            else:
                return out + rest
            # An argument may contain the same command; it is shorter than the whole text, so the recursion ends.
            out += "{" + _braced(argument.strip(), command, count, name) + "}"
    return out + rest


_PAIRS = {"(": ")", "[": "]", "{": "}"}


def closing(text: str, start: int) -> int | None:
    """The index of the bracket that closes the one at `start`. Round and square ones may be mixed, as in [0, 1)."""
    depth = 0
    brace = text[start] == "{"
    opens, closes = ("{", "}") if brace else ("([", ")]")
    for i in range(start, len(text)):
        depth += (text[i] in opens) - (text[i] in closes)
        if depth == 0:
            return i
    return None


def split(text: str, separators: str) -> list[tuple[str, str]]:
    """The parts of a text between separators (a pattern) outside of brackets, each with the separator before it."""
    parts, depth, last, before = [], 0, 0, ""
    for found in re.finditer(rf"(?P<sep>{separators})|(?P<open>[(\[{{⟦])|(?P<close>[)\]}}⟧])", text):
        if found["sep"] is not None and depth == 0:
            parts.append((before, text[last : found.start()].strip()))
            before, last = found["sep"].strip(" ⟦⟧"), found.end()
        elif found["sep"] is None:
            depth += 1 if found["open"] else -1
    return [*parts, (before, text[last:].strip())]
