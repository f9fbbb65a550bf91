"""Plain numbers with their units: `$1,250.50`, `72 clips`, `3 1/2`, `0.1\\overline{6}`, `30^\\circ`, `1e3`.

A number is read exactly, as a fraction, and its unit is stored with it. Quantities with different units are different.
A quantity without a unit may equal one with a unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from interplay.rewards.certainty import asserted, doubted
from interplay.rewards.latex import plain
from interplay.rewards.reply import tidy

LONGEST = 200  # characters

_WHOLE = r"\d{1,3}(?:,\d{3})+|\d+"
_VALUE = re.compile(
    rf"(?P<mixed>\d+)\s*(?:(?<=\s)(?P<a>\d+)/(?P<b>\d+)|\\frac\{{(?P<c>\d+)\}}\{{(?P<d>\d+)\}})"
    rf"|\\frac\{{\s*(?P<e>-?\d+)\s*\}}\{{\s*(?P<f>-?\d+)\s*\}}"
    rf"|(?P<before>\d*)\.(?P<fixed>\d*)\\(?:overline|bar)\s*\{{(?P<again>\d+)\}}"
    rf"|(?P<whole>{_WHOLE})?(?P<part>\.\d+)?(?:[eE](?P<power>[+-]?\d{{1,2}})(?![\d.]))?(?:\s*/\s*(?P<under>\d+)(?![\d.]))?",
    re.ASCII,
)
_UNIT = re.compile(
    r"\s*(?:(?P<percent>\\?%)|\^\s*\{?\s*(?P<degree>\\circ)\s*\}?"
    r"|⟦\s*(?P<text>[A-Za-z][A-Za-z .'-]{0,40}?)\s*⟧(?P<power>\s*\^\s*\{?\s*[23]\s*\}?)?"
    r"|(?<=\s)(?P<word>[A-Za-z][A-Za-z'-]+(?: [A-Za-z][A-Za-z'-]*){0,4})(?P<square>\s*\^\s*\{?\s*[23]\s*\}?)?)\s*\.?",
    re.ASCII,
)
_NO_UNIT = re.compile(
    r"\b(?:and|to|by|pairs?|half|e|pi|i|x|y|n|mod|choose|is|was|plus|minus|times|over|if|when|than)\b"
)
_PART = r"(?:third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|twelfth|sixteenth|hundredth|thousandth|millionth)"
# Words that deny the number before them or make another number of it; k is a thousand, and K is a unit. "5 fifth
# graders" and "5 meters squared" are 5. Words that doubt it are in certainty.py.
_ALTERS = re.compile(
    r"\b(?:not|nor|no|nope|never|neither|wrong|false|untrue|incorrect|or|impossible|\w+n't)\b"
    rf"|\b(?:(?:thousand|million|billion|trillion|hundred|dozen)s?|tens|halves|{_PART}s)\b|^{_PART}$"
    r"|^(?:squared|cubed|factorial|doubled|tripled|halved|twice|thrice|inverse|inverted|reciprocal|(?-i:k))$",
    re.IGNORECASE,
)
_SAME_UNIT = {
    "degree": "°", "deg": "°", "percent": "%", "per cent": "%", "dollar": "$", "usd": "$", "us dollar": "$",
    "euro": "€", "pound": "£", "centimeter": "cm", "centimetre": "cm", "meter": "m", "metre": "m", "kilometer": "km",
    "kilometre": "km", "millimeter": "mm", "millimetre": "mm", "inch": "in", "inches": "in", "foot": "ft", "feet": "ft",
    "yard": "yd", "mile": "mi", "gram": "g", "kilogram": "kg", "pound weight": "lb", "ounce": "oz", "second": "s",
    "sec": "s", "minute": "min", "hour": "h", "hr": "h", "liter": "l", "litre": "l", "unit": "", "square unit": "",
    "cubic unit": "", "rad": "radian",
}  # fmt: skip


@dataclass(frozen=True)
class Quantity:
    value: Fraction
    unit: str = ""

    def equals(self, other: Quantity) -> bool:
        """Whether `other` is this quantity. 50% equals 0.5 and, as a percentage, 50. But 0.5% does not equal 0.5."""
        if self.unit and other.unit and self.unit != other.unit:
            return False
        if self.value == other.value:
            return bool(self.unit) or other.unit != "%" or abs(self.value) >= 1 or not self.value
        hundredth = {q.unit: q.value / 100 if q.unit == "%" else q.value for q in (self, other)}
        return (self.unit == "%") != (other.unit == "%") and len(set(hundredth.values())) == 1


def quantity(text: str) -> Quantity | None:
    """A number with or without a unit; None for anything else.

    >>> quantity("$1,250.50"), quantity("5 cm"), quantity("3 or 4"), quantity("2x")
    (Quantity(value=Fraction(2501, 2), unit='$'), Quantity(value=Fraction(5, 1), unit='cm'), None, None)
    """
    text = plain(tidy(asserted(text))) if len(text) <= LONGEST and not doubted(text) else ""
    if text.startswith("⟦") and text.endswith("⟧") and text.count("⟦") == 1:
        text = text[1:-1].strip()
    signs = re.match(r"(?P<minus>-?)\s*(?P<money>[$€£]?)\s*(?P<later>-?)\s*", text)
    assert signs is not None
    found = _VALUE.match(text, signs.end())
    value = _value(found) if found is not None else None
    if found is None or value is None:
        return None
    if (unit := _unit(text, found.end(), signs["money"])) is None:
        return None
    return Quantity(-value if bool(signs["minus"]) != bool(signs["later"]) else value, unit)


def number(text: str) -> Fraction | None:
    """The value of a quantity; None for anything else.

    >>> number("72 clips"), number("\\\\frac{3}{4}"), number("3 1/2")
    (Fraction(72, 1), Fraction(3, 4), Fraction(7, 2))
    """
    found = quantity(text)
    return None if found is None else found.value


def _value(m: re.Match[str]) -> Fraction | None:
    if m["mixed"]:
        above, under = (int(x) for x in (m["a"] or m["c"], m["b"] or m["d"]))
        return int(m["mixed"]) + Fraction(above, under) if 0 < above < under else None
    if m["e"]:
        return Fraction(int(m["e"]), int(m["f"])) if int(m["f"]) else None
    if m["again"]:
        start, cycle = m["fixed"], m["again"]
        scale = 10 ** len(start)
        rest = Fraction(int(start or "0"), scale) + Fraction(int(cycle), scale * (10 ** len(cycle) - 1))
        return int(m["before"] or "0") + rest
    if not (m["whole"] or m["part"]) or (m["under"] and (int(m["under"]) == 0 or m["part"] or m["power"])):
        return None
    value = Fraction((m["whole"] or "0").replace(",", "") + (m["part"] or "")) / int(m["under"] or 1)
    return value * Fraction(10) ** int(m["power"] or 0)


def alters(words: str) -> bool:
    """Whether words after a number or a formula deny it, or make another number of it.

    >>> alters("thousands"), alters("squared"), alters("isn't it"), alters("fifth graders")
    (True, True, True, False)
    """
    return _ALTERS.search(words.strip()) is not None


def without_unit(text: str) -> tuple[str, str]:
    """A formula and the unit after it; the unit is "" if there is none.

    >>> without_unit("36π⟦ cm⟧^2"), without_unit("2x")
    (('36π', 'cm^2'), ('2x', ''))
    """
    for start in range(1, len(text)):
        if text[start] in " ⟦^\\%" and (unit := _unit(text, start, "")):
            angle = unit == "°" and re.search(r"\\(?:sin|cos|tan|cot|sec|csc)", text)  # \sin 45^\circ is not an angle
            return (text, "") if angle else (text[:start].strip(), unit)
    return text, ""


def _unit(text: str, start: int, money: str) -> str | None:
    """The unit of the number that ends at `start`: "" without a unit, None if what follows is not a unit."""
    if start == len(text):
        return money
    found = _UNIT.fullmatch(text, start)
    if found is None:
        return None
    if found["percent"] or found["degree"]:
        return None if money else "%" if found["percent"] else "°"
    words = found["text"] or found["word"]
    name = " ".join(words.lower().split()).strip(" .")
    if alters(words) or (_NO_UNIT.search(name) and not (found["text"] and len(name) == 1)):
        return None
    single = name.removesuffix("s") if len(name) > 3 else name
    name = _SAME_UNIT.get(name, _SAME_UNIT.get(single, single))
    power = re.sub(r"\D", "", found["power"] or found["square"] or "")
    if money:
        return money if name in ("$", "") else None
    return f"{name}^{power}" if power else name
