"""Circuits to be described in Verilog: rows of kind `hardware` (see envs/tasks/circuits.py)."""

from __future__ import annotations

import re
from typing import ClassVar

from interplay.envs.tasks.data import Public, Row, register_format


@register_format("verilog_eval")
class VerilogEval(Public):
    """Problems of the HDLBits collection with references and benches (Liu et al., 2023), version 2."""

    kind: ClassVar[str] = "hardware"
    licence = "MIT"
    alone: ClassVar[str | None] = "test"
    id: str
    spec_prompt: str
    ifc: str
    ref: str
    test: str
    iverilog11_ref_ok: bool = True

    def row(self) -> Row | None:
        if not self.iverilog11_ref_ok:
            return None
        golden = re.sub(r"\bRefModule\b", "TopModule", self.ref)
        row = {"id": self.id, "question": self.spec_prompt.strip(), "interface": self.ifc.strip(), "golden": golden}
        return {**row, "reference": self.ref, "bench": self.test}
