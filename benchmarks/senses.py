"""Measures how fast the engine samples when prompts hold pictures, and whether engine and learner agree on them.

    python benchmarks/senses.py                    one GPU: Qwen2.5-VL-3B's shape with random weights, bf16
    python benchmarks/senses.py --quick            a CPU: a small model of the same family, fp32
    python benchmarks/senses.py --json table.json  also write the lines as JSON
    python benchmarks/senses.py --profile          also where the time of the vision encoder goes, by kernel
    python benchmarks/senses.py --seconds 300      stop after this time and keep what is printed (default 480)

Each request has a picture of its own (448 × 448 pixels, 256 tokens) and 44 tokens of text; the text model of the same
shape gets prompts of the same length. Both sample 256 tokens at temperature 1. "pictures" is the time for the vision
encoder, the prompt and decoding; "with processor" adds the work of the processor on the CPU. The gap is the difference
between the log-probs of the engine and of the learner for the same tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from kernels import kernels, show_kernels
from tokenizers import AddedToken
from transformers import Qwen2_5_VLConfig, Qwen2VLImageProcessorPil

from interplay.agents.render import Prompt, Renderer
from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.envs.picture import png
from interplay.models import senses, tiny
from interplay.models.families import FAMILIES
from interplay.models.load import blank
from interplay.models.processors import PictureProcessor
from interplay.training.forward import logprobs
from interplay.training.tries import Example
from interplay.types import Completion, Media, Message, Sample

MARKS = ("<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{% for c in m['content'] %}{% if c['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|end|>{% endfor %}"
)
LARGE: dict[str, Any] = {
    "text": {
        "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16,
        "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 4096, "section": [16, 24, 24],
    },
    "eye": {
        "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 2048,
        "patch_size": 14, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
    },
    "pixels": 448, "requests": 256, "tokens": 256, "gap_requests": 16,
}  # fmt: skip
SMALL: dict[str, Any] = {
    "text": {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 1024, "max_position_embeddings": 1024, "section": [2, 3, 3],
    },
    "eye": {
        "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64,
        "patch_size": 14, "window_size": 112, "fullatt_block_indexes": [1],
    },
    "pixels": 112, "requests": 8, "tokens": 16, "gap_requests": 8,
}  # fmt: skip


@dataclass
class SenseLine:
    what: str
    value: float
    unit: str


def build(size: dict[str, Any], device: str, dtype: torch.dtype) -> tuple[Any, Renderer]:
    """A model of this size with random weights, and its renderer."""
    tokenizer = tiny.build_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(m, special=True) for m in MARKS]})
    ids = tokenizer.convert_tokens_to_ids
    text = dict(size["text"])
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": text.pop("section")}
    config = Qwen2_5_VLConfig(
        text_config={**text, "rope_parameters": rope, "tie_word_embeddings": True, "eos_token_id": 1},
        vision_config={**size["eye"], "spatial_merge_size": 2, "temporal_patch_size": 2},
        image_token_id=ids("<|image_pad|>"), video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"), vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        model = blank("Qwen2.5-VL", config, dtype).eval()
    model.requires_grad_(False)
    images = Qwen2VLImageProcessorPil(
        patch_size=14, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 56 * 56, "longest_edge": 1 << 20}
    )
    sense = senses.Senses(model, PictureProcessor(images, tokenizer, TEMPLATE), FAMILIES["qwen2_5_vl"])
    senses.attach(model, sense)
    tokenizer.chat_template = TEMPLATE
    return model, Renderer(tokenizer, [1], sense)


def pictures(size: dict[str, Any], first: int) -> list[Media]:
    """As many distinct pictures as there are requests; `first` is the seed of the first one."""
    side, out = size["pixels"], []
    for seed in range(first, first + size["requests"]):
        pixels = np.random.default_rng(seed).integers(0, 256, (side // 8, side // 8, 3), np.uint8)
        large = pixels.repeat(8, 0).repeat(8, 1)
        out.append(Media("image", png(side, side, (row.tobytes() for row in large))))
    return out


def seeing(renderer: Renderer, shown: list[Media]) -> list[Prompt]:
    """Prompts with a picture each."""
    words = ["".join(random.Random(i).choices("abcdefgh", k=40)) for i in range(len(shown))]
    return [renderer.prompt((Message("user", text, media=(m,)),)) for text, m in zip(words, shown, strict=True)]


def reading(size: dict[str, Any], first: int, length: int) -> list[Prompt]:
    """Prompts of text alone, of `length` tokens."""
    every = [random.Random(seed) for seed in range(first, first + size["requests"])]
    return [Prompt(tuple(words.randrange(10, 500) for _ in range(length)), "") for words in every]


def sample(engine: LocalEngine, asked: list[Prompt], tokens: int) -> tuple[list[Completion], float]:
    async def everything() -> list[Completion]:
        requests = [Request((i,), p.ids, i, Sampling(1.0, tokens), media=p.media) for i, p in enumerate(asked)]
        return list(await asyncio.gather(*(engine.generate(r) for r in requests)))

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    found = asyncio.run(everything())
    return found, time.perf_counter() - began


def measure(size: dict[str, Any], device: str, dtype: torch.dtype, report: Any, profiled: bool) -> None:
    model, renderer = build(size, device, dtype)
    engine = LocalEngine(model)
    warm = seeing(renderer, pictures(size, 0)[: size["requests"] // 4])
    length = len(warm[0].ids)
    report("tokens of a prompt", length, "tokens")
    sample(engine, reading(size, 0, length)[: len(warm)], 8)  # kernels and graphs
    sample(engine, warm, 8)
    total = size["requests"] * size["tokens"]
    best: dict[str, float] = {}
    for once in (1, 2):  # with new pictures, so that nothing is known of them
        shown = pictures(size, once * size["requests"])
        began = time.perf_counter()
        seen = seeing(renderer, shown)
        best["processor"] = min(best.get("processor", 1e9), time.perf_counter() - began)
        for what, asked in (("text", reading(size, once * size["requests"], length)), ("pictures", seen)):
            engine.flush()
            found, seconds = sample(engine, asked, size["tokens"])
            best[what] = min(best.get(what, 1e9), seconds)
    processor = best["processor"]
    report("pictures per second of the processor", size["requests"] / processor, "1/s")
    report("text", total / best["text"], "tokens/s")
    report("pictures", total / best["pictures"], "tokens/s")
    report("pictures, share of text", 100 * best["text"] / best["pictures"], "%")
    report("with processor, share of text", 100 * best["text"] / (best["pictures"] + processor), "%")
    some = [
        Example("p", Sample(str(i), p.ids, c.tokens, c.logprobs, (), "", media=p.media))
        for i, (p, c) in enumerate(zip(seen[: size["gap_requests"]], found, strict=False))
    ]
    ours = logprobs(model, some, 8192)
    gaps = [abs(a - b) for e, o in zip(some, ours, strict=True) for a, b in zip(e.sample.logprobs, o, strict=True)]
    report("mean gap of engine and learner", sum(gaps) / len(gaps), "nats")
    report("largest gap of engine and learner", max(gaps), "nats")
    if profiled:
        spans = [span for p in seeing(renderer, pictures(size, 3 * size["requests"])) for span in p.media]
        sense = senses.of(model)
        assert sense is not None
        print(f"the vision encoder with {len(spans)} pictures:")
        print(show_kernels(kernels(lambda: sense.features(spans), device)))
    engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small model on a CPU")
    parser.add_argument("--seconds", type=int, default=480, help="stop after this time")
    parser.add_argument("--json", help="also write the lines to this file")
    parser.add_argument("--profile", action="store_true", help="also print the kernels of the vision encoder")
    given = parser.parse_args()
    lines: list[SenseLine] = []

    def report(what: str, value: float, unit: str) -> None:
        lines.append(SenseLine(what, value, unit))
        print(f"{what:40} {value:12,.4g} {unit}", flush=True)

    def stop(*_: object) -> None:
        raise TimeoutError(f"the limit of {given.seconds} seconds was reached; the lines above are complete")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(given.seconds)
    try:
        if given.quick or not torch.cuda.is_available():
            measure(SMALL, "cpu", torch.float32, report, given.profile)
        else:
            measure(SMALL, "cuda", torch.float32, report, False)
            print()
            measure(LARGE, "cuda", torch.bfloat16, report, given.profile)
    except TimeoutError as error:
        print(error)
    finally:
        signal.alarm(0)
        if given.json:
            with open(given.json, "w") as file:
                json.dump([asdict(line) for line in lines], file, indent=1)


if __name__ == "__main__":
    main()
