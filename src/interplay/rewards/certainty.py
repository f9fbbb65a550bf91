"""Separates an answer from words that only affirm it, and recognises words that doubt it.

The rule: an answer may stand between words that say that it is so (`exactly 5`, `5 for sure`); they are removed. An
answer does not count if a word says that it may be wrong (`probably 5`, `5 I think`), or that it is only near the right
one or a bound of it (`about 5`, `at least 5`). Only words inside the stated answer matter: "I think the answer is 5"
states 5.
"""

from __future__ import annotations

import re

LONGEST = 400  # characters; a longer text is left as it is

_SURE = (
    r"exactly|precisely|only|just|simply|merely|definitely|certainly|clearly|obviously|evidently|indeed|surely|truly"
    r"|undoubtedly|naturally|of course|no doubt|without (?:a |any )?doubt|(?:in )?total|in all|altogether|overall"
)
_BEFORE = rf"{_SURE}|(?:it|this|that|which) (?:is|equals)|equal(?:s| to)|(?:a |the |in )?total of"
_AFTER = rf"{_SURE}|for (?:sure|certain)|I(?:'m| am) (?:sure|certain|confident)"
_WORDS = r"\\(?:text\w*|mathrm|mbox)\s*\{\s*"  # words in LaTeX
_OPENING = re.compile(
    rf"(?P<start>^[\s$]*|=[\s$]*)(?:{_WORDS}(?:{_BEFORE})[\s,:]*\}}|(?:{_BEFORE})\b(?:[\s,:~]+|(?=[$\\])))", re.I
)
_CLOSING = re.compile(
    rf"(?:[\s,;~]*{_WORDS}[(,]?(?:{_AFTER})\)?\s*\}}|(?:[\s,;~]+|[\s,;~]*\(|(?<=\$))(?:{_AFTER})\)?)[\s.!]*(?P<end>\$*)\s*$",
    re.I,
)
# "5 guesses", "5 books about whales", "5 likely winners" and "5 possible outcomes" are 5 with a unit.
_DOUBT = re.compile(
    r"\b(?:guess|guessing|guessed|guesstimate|maybe|perhaps|probabl[ey]|possibly|unlikely|presumabl[ey]|presumed"
    r"|suppos(?:e|ed|edly)|hopefully|apparently|seem(?:s|ed|ingly)?|allegedly|arguabl[ey]|tentative(?:ly)?|conceivabl[ey]"
    r"|plausibl[ey]|approx(?:imate(?:ly)?)?|roughly|nearly|almost|circa|ish|at least|at most|or so|estimated|unsure"
    r"|uncertain|doubtful(?:ly)?|questionabl[ey]|debatabl[ey]|could|might|would|should|may be|assum(?:e|ing|ed)|believe"
    r"|think|reckon|hoping|hope|imagine|who knows|whatever|unless|hardly|barely|scarcely|not sure|in doubt)\b"
    r"|\b(?:about|around|likely|doubt)\W*$|^[\s$]*(?:\\\w+\s*\{\s*)?(?:about|around|likely)\b"
    r"|\b(?-i:I|[Ww]e)(?:'[a-z]+| [a-z]{2,})"
    r"|^[\s$]*~\s*(?=[\d.-])",
    re.I,
)


def asserted(text: str) -> str:
    """An answer without the words before and after it that only affirm it.

    >>> asserted("exactly 5"), asserted("it is definitely $5$"), asserted("5 apples, for sure"), asserted("only")
    ('5', '$5$', '5 apples', 'only')
    """
    if len(text) > LONGEST:
        return text
    while (shorter := _CLOSING.sub(r"\g<end>", _OPENING.sub(r"\g<start>", text))) != text and shorter.strip(" .!$"):
        text = shorter
    return text


def doubted(text: str) -> bool:
    """Whether words in an answer say that it may be otherwise, or that it is not quite the answer.

    >>> doubted("5 I think"), doubted("probably 5"), doubted("5 guesses"), doubted("5, no doubt")
    (True, True, False, False)
    """
    return len(text) <= LONGEST and _DOUBT.search(asserted(text)) is not None
