"""Decides which Verilog designs are accepted: those that cannot reach the reference, the bench or its count.

A bench compares a design with a reference and prints `Mismatches: N in M samples`. A design may not print, read files,
define macros, or name anything outside itself. It may have a time scale, name the fields of its own structures, and
refer to its own instances and generated blocks.
"""

from __future__ import annotations

import re

from interplay.execution import verilog
from interplay.execution.sandbox import Isolation

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TIME = r"10{0,2}\s*(?:s|ms|us|ns|ps|fs)"
_HARMLESS = re.compile(
    rf"^[ \t]*`(?:timescale\s+{_TIME}\s*/\s*{_TIME}|default_nettype\s+(?:none|wire))[ \t]*$", re.MULTILINE
)
_FORBIDDEN = (
    (re.compile(r"\$(?!signed\b|unsigned\b|clog2\b|bits\b)\w*"), "calls a system task"),
    (re.compile(r"[`\\\"]"), "has a directive, an escaped name or a string"),
    (re.compile(r"\b(?:bind|defparam|force|release|program|final)\b"), "changes what is not its own"),
)
_DOTTED = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*\.\s*[A-Za-z_]")
_INSTANCE = re.compile(r"\b[A-Za-z_]\w*\s+(?:#\s*\([^;]*?\)\s*)?([A-Za-z_]\w*)\s*\(")
_BLOCK = re.compile(r"\bbegin\s*:\s*([A-Za-z_]\w*)")
_STRUCTURE = re.compile(r"\b(?:struct|union)\b[^{;]*\{[^}]*\}\s*([^;]+);")
_TYPE = re.compile(r"\btypedef\s+(?:struct|union)\b[^{;]*\{[^}]*\}\s*([A-Za-z_]\w*)\s*;")


def refused(design: str, others: str = "") -> str:
    """Why a design cannot be used beside the modules in `others`; empty if it can."""
    if not 0 < len(design.strip()) <= verilog.LONGEST:
        return "there is no design"
    plain = _HARMLESS.sub(" ", _COMMENT.sub(" ", design))
    if not re.search(r"\bmodule\s+TopModule\b", plain):
        return "it does not define TopModule"
    outside = set(re.findall(r"\bmodule\s+(\w+)", others)) - {"TopModule"}
    if named := outside & set(re.findall(r"\w+", plain)):
        return f"it names the module {min(named)}, which is not its own"
    if why := next((why for pattern, why in _FORBIDDEN if pattern.search(plain)), ""):
        return f"it {why}"
    own = _own_names(plain) - set(_INSTANCE.findall(_COMMENT.sub(" ", others)))
    foreign = [name for name in _DOTTED.findall(plain) if name not in own]
    return f"it names something inside {foreign[0]}, which is not its own" if foreign else ""


def _own_names(plain: str) -> set[str]:
    """The names of instances, generated blocks and structures of a design, which may stand before a dot."""
    types = _TYPE.findall(plain)
    variables = [part for found in _STRUCTURE.findall(plain) for part in found.split(",")]
    if types:
        declared = re.finditer(rf"\b(?:{'|'.join(types)})\s+(?:\[[^\]]*\]\s*)?([A-Za-z_][\w\s,\[\]:]*?)\s*[;=)]", plain)
        variables += [part for found in declared for part in found[1].split(",")]
    named = {match[0] for part in variables if (match := re.match(r"[A-Za-z_]\w*", part.strip()))}
    return named | set(_INSTANCE.findall(plain)) | set(_BLOCK.findall(plain))


def measure(design: str, reference: str, bench: str, isolation: Isolation) -> verilog.Simulation:
    """Compare a design with a reference, with the data set's own bench."""
    if why := refused(design, reference + bench):
        return verilog.Simulation(False, trouble=why)
    return verilog.simulated(design, reference, bench, isolation)
