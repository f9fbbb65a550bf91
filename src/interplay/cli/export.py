"""`interplay export`: writes a trained policy as files that transformers, PEFT and vLLM can load."""

from __future__ import annotations

import shutil
from pathlib import Path

from rich.console import Console

from interplay.cli.evaluate import newest
from interplay.config import load
from interplay.errors import ConfigError, did_you_mean
from interplay.rollout.resolve import resolve


def export_policy(console: Console, path: str, policy: str | None, to: Path, folder: Path | None, merged: bool) -> None:
    """Copies the policy from the checkpoint, as a Hugging Face folder or a PEFT adapter. With `merged`, an adapter is
    merged into its base model."""
    plan = resolve(load(path, []))
    sources = newest(path, plan, folder)
    if not sources:
        raise ConfigError(f"'{path}' is no run folder; expected one made by interplay train.")
    if policy is None and len(sources) > 1:
        raise ConfigError(f"the run trains {', '.join(sorted(sources))}; say which with --policy.")
    name = policy or next(iter(sources))
    if name not in sources:
        raise ConfigError(f"--policy is '{name}', which this run does not train; {did_you_mean(name, sources)}")
    if to.exists() and any(to.iterdir()):
        raise ConfigError(f"--to is '{to}', which holds files already; expected a new or empty folder.")
    section = plan.recipe.policies.get(name)  # None: a channel
    adapted = section is not None and section.adapter is not None
    if section is None and merged:
        raise ConfigError(f"channel '{name}' has no base to be merged into; expected --policy to name an adapter.")
    try:
        if section is not None and adapted and merged:
            _merge(section.base, Path(sources[name]), to, plan.recipe.seed)
        else:
            shutil.copytree(sources[name], to, dirs_exist_ok=True)
    except OSError:  # remove the incomplete copy, which would also block the next call
        shutil.rmtree(to, ignore_errors=True)
        raise
    kind = "a PEFT adapter" if adapted and not merged else "a Hugging Face folder"
    what = f"channel '{name}' is in {to}" if section is None else f"policy '{name}' is in {to}, {kind}"
    console.print(what, highlight=False, soft_wrap=True)


def _merge(base: str, adapter_folder: Path, to: Path, seed: int) -> None:
    from interplay.cli.quiet import quiet_libraries

    quiet_libraries()
    import torch

    from interplay.models.load import load as load_model
    from interplay.models.lora import load_adapter
    from interplay.models.save import save
    from interplay.models.stacked import layers

    loaded, adapter = load_model(base, "cpu", torch.float32, seed), load_adapter(adapter_folder)
    known = layers(loaded.model)
    with torch.no_grad():
        for name, (down, up) in adapter.weights.items():
            change = adapter.scale * (up @ down)
            weight: torch.Tensor = known[name].weight  # type: ignore[assignment]
            weight += (
                change if change.shape == weight.shape and isinstance(known[name], torch.nn.Linear) else change.t()
            )
    save(loaded, to)
