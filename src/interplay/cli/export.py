"""`interplay export`: a trained policy as files that transformers, PEFT and vLLM can load, here or on the hub."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from interplay.cli.evaluate import newest
from interplay.config import load
from interplay.errors import ConfigError, InterplayError, did_you_mean
from interplay.rollout.resolve import resolve


@dataclass(frozen=True)
class ExportRequest:
    """What `interplay export` was asked for. `to` or `push` is given, or both."""

    to: Path | None = None
    policy: str | None = None
    checkpoint: Path | None = None
    merged: bool = False
    push: str | None = None
    public: bool = False


def export_run(console: Console, path: str, wanted: ExportRequest) -> None:
    """Writes a policy to a folder, sends it to the hub, or both."""
    if wanted.to is None and wanted.push is None:
        raise ConfigError("neither --to nor --push is given; expected --to FOLDER, --push OWNER/NAME, or both.")
    with tempfile.TemporaryDirectory(prefix="interplay-") as scratch:
        to = wanted.to or Path(scratch) / "model"
        said = _write(path, to, wanted)
        if wanted.to is not None:
            console.print(said, highlight=False, soft_wrap=True)
        if wanted.push is not None:
            url = _push(to, wanted.push, wanted.public)
            console.print(f"pushed to {url}", highlight=False, soft_wrap=True)


def _write(path: str, to: Path, wanted: ExportRequest) -> str:
    """Copies the policy from the checkpoint, as a Hugging Face folder or a PEFT adapter, and writes its model card.
    With `merged`, an adapter is merged into its base model."""
    from interplay.cli.card import card  # imports torch

    plan, policy, merged = resolve(load(path, [])), wanted.policy, wanted.merged
    sources = newest(path, plan, wanted.checkpoint)
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
    if section is not None and merged and not adapted:
        raise ConfigError(f"--merged has no effect on '{name}', which has no adapter; leave --merged out.")
    if section is None and merged:
        raise ConfigError(f"channel '{name}' has no base to be merged into; expected --policy to name an adapter.")
    try:
        if section is not None and adapted and merged:
            _merge(section.base, Path(sources[name]), to, plan.recipe.seed)
        else:
            shutil.copytree(sources[name], to, dirs_exist_ok=True)
        if section is not None:
            text = card(Path(path), plan.recipe, name, merged, wanted.push)
            (to / "README.md").write_text(text, encoding="utf-8")
    except OSError:  # remove the incomplete copy, which would also block the next call
        shutil.rmtree(to, ignore_errors=True)
        raise
    kind = "a PEFT adapter" if adapted and not merged else "a Hugging Face folder"
    return f"channel '{name}' is in {to}" if section is None else f"policy '{name}' is in {to}, {kind}"


def _push(folder: Path, repo: str, public: bool) -> str:
    """Sends a folder to a repository of the hub, which is made if it does not exist. Returns its address."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

    # The base class of all errors of the HTTP client. Which client library it is depends on huggingface_hub's version.
    named = (kind for kind in HfHubHTTPError.__mro__ if kind.__name__ == "HTTPError")
    lost: tuple[type[Exception], ...] = (OSError, *(kind for kind in named if issubclass(kind, Exception)))
    api = HfApi()
    try:
        url = api.create_repo(repo, private=not public, exist_ok=True)
        api.upload_folder(repo_id=url.repo_id, folder_path=folder, commit_message="Trained with Interplay")
    except HFValidationError as error:
        raise ConfigError(f"--push is '{repo}'; expected OWNER/NAME ({_first(error)}).") from None
    except (HfHubHTTPError, LocalTokenNotFoundError) as error:
        raise InterplayError(
            f"the hub refused '{repo}' ({_first(error)}); expected a token that may write there: hf auth login, or "
            "HF_TOKEN."
        ) from None
    except lost as error:
        raise InterplayError(
            f"the hub cannot be reached ({_first(error)}); --to FOLDER writes the files here."
        ) from None
    return str(url)


def _first(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


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
