"""Reads requests with SGLang's own classes: python sglang_contract.py FOLDER SENT.json

FOLDER has SGLang's Python files (`make test-sglang`). SGLang cannot be installed as a whole without a GPU, so only the
modules with the request classes are imported. Packages are not executed, and a few modules that these classes name for
other kinds of requests are replaced by empty ones.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.abc
import json
import sys
import types
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import core_schema

FOLDER = Path(sys.argv[1])
REPLACED = {f"sglang.srt.{name}" for name in ("managers.schedule_batch", "multimodal.mm_utils", "beam_search.types")}


class Replaced(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__get_pydantic_core_schema__": classmethod(lambda *_: core_schema.any_schema())})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package = FOLDER.joinpath(*name.split(".")).is_dir()
        if name.split(".")[0] != "sglang" or not (package or name in REPLACED):
            return None
        return ModuleSpec(name, self, is_package=package)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return Replaced(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__path__ = [str(FOLDER.joinpath(*module.__name__.split(".")))]


class Letters:
    """A tokenizer in which each character is a token."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return [ord(letter) for letter in text]


def classes_of_paths() -> dict[str, str]:
    """For each path of SGLang's server, the name of the class that reads the request's body."""
    out: dict[str, str] = {}
    tree = ast.parse((FOLDER / "sglang/srt/entrypoints/http_server.py").read_text())
    for node in tree.body:
        if not isinstance(node, ast.AsyncFunctionDef) or not node.args.args:
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and mark.args and isinstance(mark.args[0], ast.Constant):
                names = [n.id for n in ast.walk(node.args.args[0]) if isinstance(n, ast.Name)]
                out[str(mark.args[0].value)] = next((n for n in names if n.endswith(("Req", "ReqInput"))), "")
    return out


def main() -> None:
    sys.path.append(str(FOLDER))
    sys.meta_path.insert(0, Finder())
    requests = import_module("sglang.srt.managers.io_struct")
    sampling = import_module("sglang.srt.sampling.sampling_params")
    known, read = classes_of_paths(), 0
    for call in json.loads(Path(sys.argv[2]).read_text()):
        path, body = call["path"], call["body"]
        read_by = getattr(requests, known[path])
        fields = {f.name for f in dataclasses.fields(read_by)} if dataclasses.is_dataclass(read_by) else None
        unknown = set(body) - (fields or set(read_by.__struct_fields__))
        assert not unknown, f"{path}: {read_by.__name__} has no {unknown}"
        found = TypeAdapter(read_by).validate_python(body)
        for name, value in body.items():
            assert getattr(found, name) == value, f"{path}: {name} is {getattr(found, name)!r}, sent as {value!r}"
        if path == "/generate":
            found.normalize_batch_and_arguments()
            settings = sampling.SamplingParams(**body["sampling_params"])
            settings.normalize(Letters())
            settings.verify(100)
        read += 1
    print(json.dumps({"read": read}))


if __name__ == "__main__":
    main()
