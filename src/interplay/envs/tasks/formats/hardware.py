"""Circuits to write in Verilog: rows of kind `hardware` (see envs/tasks/circuits.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import AliasChoices, Field

from interplay.envs.tasks.data import DataRow, Hub, Public, register_format

_HEADER = re.compile(r"module\s+RefModule\b.*?\)\s*;", re.DOTALL)


@register_format("verilog_eval")
class VerilogEval(Public):
    """Problems of the HDLBits collection with references and benches (Liu et al., 2023), version 2.

    From the hub, or a copy of its repository (dataset_spec-to-rtl). Icarus finds some of its references wrong or cannot
    compile them. These are left out, like every row whose gold answer fails."""

    kind: ClassVar[str] = "hardware"
    licence = "MIT"
    hub: ClassVar[Mapping[str, Hub]] = {"test": ("dakies/nvlabs-verilogeval-v2-spec-to-rtl", None, "test")}
    alone: ClassVar[str | None] = "test"
    id: str = Field(validation_alias=AliasChoices("id", "problem_id"))
    spec_prompt: str = Field(validation_alias=AliasChoices("spec_prompt", "prompt"))
    ref: str
    test: str

    @classmethod
    def unpacked(cls, folder: Path) -> Iterator[Mapping[str, Any]] | None:
        inside = folder / "dataset_spec-to-rtl"
        prompts = sorted((inside if inside.is_dir() else folder).glob("*_prompt.txt"))
        return (_problem(file) for file in prompts) if prompts else None

    def row(self) -> DataRow:
        if (header := _HEADER.search(self.ref)) is None:
            raise ValueError("ref declares no module RefModule")
        golden, interface = (re.sub(r"\bRefModule\b", "TopModule", text) for text in (self.ref, header[0]))
        row = {"id": self.id, "question": self.spec_prompt.strip(), "interface": interface, "golden": golden}
        return {**row, "reference": self.ref, "bench": self.test}


def _problem(prompt: Path) -> Mapping[str, Any]:
    name = prompt.name.removesuffix("_prompt.txt")
    files = {"prompt": prompt, **{part: prompt.with_name(f"{name}_{part}.sv") for part in ("ref", "test")}}
    return {"id": name} | {part: f.read_text(encoding="utf-8") for part, f in files.items() if f.is_file()}
