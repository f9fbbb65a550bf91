"""Adapters on disk are in PEFT's format: each side reads what the other wrote, with the same logits."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from families import WORDS, make
from helpers import ask, close_to, full_forward, merged, random_adapter, serve
from safetensors.torch import load_file, save_file
from torch import Tensor

from interplay.engines.local import LocalEngine
from interplay.errors import ModelError
from interplay.models.adapter import Adapter
from interplay.models.lora import CONFIG, WEIGHTS, load_adapter, new_adapter, save_adapter

IDS = torch.arange(2, 14).unsqueeze(0)


@torch.no_grad()
def logits(model: Any) -> Tensor:
    return model(IDS).logits


def equal(a: Adapter, b: Adapter) -> None:
    assert (a.rank, list(a.weights)) == (b.rank, list(b.weights))
    assert a.scale == pytest.approx(b.scale, rel=1e-12)
    for name, pair in a.weights.items():
        for mine, other in zip(pair, b.weights[name], strict=True):
            assert torch.equal(mine, other), name


@pytest.mark.parametrize("family", ["llama", "phi3", "gpt2"])
def test_what_is_saved_is_read_back_and_by_peft_with_the_logits_of_merged_weights(family: str, tmp_path: Path) -> None:
    from peft import PeftModel

    adapter = random_adapter(make(family), rank=3, seed=5, scale=0.7)
    save_adapter(adapter, tmp_path)
    again = load_adapter(tmp_path)
    equal(Adapter(3, 0.7, dict(sorted(adapter.weights.items()))), Adapter(3, again.scale, dict(again.weights)))
    theirs = PeftModel.from_pretrained(make(family, "sdpa"), str(tmp_path)).eval()
    expected = logits(merged(make(family, "sdpa"), adapter))
    torch.testing.assert_close(logits(theirs), expected, atol=1e-4, rtol=1e-4)
    assert (expected - logits(make(family, "sdpa"))).abs().max() > 0.1, "guards this test: the adapter is felt"


@pytest.mark.parametrize(("family", "rslora"), [("qwen2", False), ("qwen2", True), ("gpt2", False)])
def test_what_peft_saves_is_served_with_its_logprobs(family: str, rslora: bool, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    names = ["c_attn", "c_fc"] if family == "gpt2" else ["q_proj", "down_proj"]
    config = LoraConfig(r=4, lora_alpha=6, target_modules=names, use_rslora=rslora, fan_in_fan_out=family == "gpt2")
    theirs = get_peft_model(make(family, "sdpa"), config).eval()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        for name, parameter in theirs.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.3)
    theirs.save_pretrained(str(tmp_path))
    adapter = load_adapter(tmp_path)
    assert adapter.scale == pytest.approx(6 / math.sqrt(4) if rslora else 6 / 4)
    engine = LocalEngine(make(family), 256, 4)
    engine.load("a", adapter, 3)
    prompt = tuple(range(2, 11))
    completion = serve(engine, [ask(0, prompt, 6, adapter="a")])[0]
    assert {*completion.versions} == {3}
    close_to(completion.logprobs, full_forward(theirs, prompt, completion.tokens))


def test_a_new_adapter_changes_nothing_yet_and_begins_as_peft_does() -> None:
    model = make("llama")
    adapter = new_adapter(model, 4, 8.0, ("q_proj", "mlp.down_proj"), seed=1)
    assert adapter.scale == 2.0
    assert sorted({n.rpartition(".")[2] for n in adapter.weights}) == ["down_proj", "q_proj"]
    assert len(adapter.weights) == 4
    for down, up in adapter.weights.values():
        assert down.dtype is up.dtype is torch.float32
        bound = down.shape[1] ** -0.5
        assert bound * 0.8 < down.abs().max() <= bound
        assert not up.any()
    equal(adapter, new_adapter(model, 4, 8.0, ("q_proj", "mlp.down_proj"), seed=1))
    other = new_adapter(model, 4, 8.0, ("q_proj",), seed=2)
    name = next(iter(other.weights))
    assert not torch.equal(other.weights[name][0], adapter.weights[name][0])
    assert len(new_adapter(model, 2, 2.0, (), seed=0).weights) == 14, "no targets: every layer"
    with pytest.raises(ModelError, match=r"no layer of the model is called 'k_porj'; .*Did you mean 'k_proj'"):
        new_adapter(model, 4, 8.0, ("k_porj",), seed=1)
    with pytest.raises(ModelError, match="rank is 0; expected at least 1"):
        new_adapter(model, 0, 8.0, ("k_proj",), seed=1)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"use_dora": True}, "sets use_dora"),
        ({"rank_pattern": {"q_proj": 2}}, "sets rank_pattern"),
        ({"alpha_pattern": {"q_proj": 2}}, "sets alpha_pattern"),
        ({"modules_to_save": ["lm_head"]}, "sets modules_to_save"),
        ({"bias": "all"}, "trains biases"),
        ({"init_lora_weights": "pissa_niter_4"}, "initialised with pissa"),
        ({"peft_type": "IA3"}, "is of type IA3; expected LORA"),
        ({"r": None}, "has no rank and alpha"),
        ({"r": 5}, r"expected lora_A \(5, in\) and lora_B \(out, 5\)"),
    ],
)
def test_what_an_adapter_cannot_express_is_refused(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    save_adapter(random_adapter(make("llama"), 3, 0), tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    (tmp_path / CONFIG).write_text(json.dumps(config | change))
    with pytest.raises(ModelError, match=sentence) as caught:
        load_adapter(tmp_path)
    assert "\n" not in str(caught.value)


def test_files_that_are_missing_broken_or_hold_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"no readable {CONFIG}"):
        load_adapter(tmp_path)
    save_adapter(random_adapter(make("llama"), 3, 0), tmp_path)
    tensors = load_file(tmp_path / WEIGHTS)
    first = next(iter(tensors))
    odd = "base_model.model.model.embed_tokens.lora_embedding_A"
    save_file(tensors | {odd: torch.zeros(3, WORDS)}, tmp_path / WEIGHTS)
    with pytest.raises(ModelError, match=rf"contains '{odd}'"):
        load_adapter(tmp_path)
    save_file({k: v for k, v in tensors.items() if k != first}, tmp_path / WEIGHTS)
    with pytest.raises(ModelError, match="expected lora_A"):
        load_adapter(tmp_path)
    save_file({}, tmp_path / WEIGHTS)
    with pytest.raises(ModelError, match="has no weights"):
        load_adapter(tmp_path)
    (tmp_path / WEIGHTS).write_bytes(b"no tensors")
    with pytest.raises(ModelError, match=rf"no readable {WEIGHTS}"):
        load_adapter(tmp_path)


def test_what_is_saved_is_what_vllms_loader_asks_for(tmp_path: Path) -> None:
    """vLLM identifies an adapter by the names of its tensors, each of a linear layer of the base. It refuses complete
    modules, DoRA and biases, and multiplies by alpha / rank."""
    base = make("llama")
    save_adapter(random_adapter(base, rank=8, seed=5, scale=0.5), tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    assert not config.get("modules_to_save") and not config.get("use_dora") and config["bias"] == "none"
    assert config["lora_alpha"] / config["r"] == 0.5 and (CONFIG, WEIGHTS) == (
        "adapter_config.json",
        "adapter_model.safetensors",
    )
    linear = {name for name, module in base.named_modules() if isinstance(module, torch.nn.Linear)}
    tensors = load_file(tmp_path / WEIGHTS)
    for name, tensor in tensors.items():
        found = re.fullmatch(r"base_model\.model\.(.+)\.lora_([AB])\.weight", name)
        assert found and found[1] in linear
        assert tensor.shape[0 if found[2] == "A" else 1] == config["r"]
