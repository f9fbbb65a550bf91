"""Measures how fast vLLM samples offline, for `engine.py --vllm`, which starts this in a process of its own.

    python benchmarks/vllm_rate.py FOLDER --batches 256,1024

FOLDER is a Hugging Face folder. Every request has 256 random prompt tokens and gets 256 new ones at temperature 1, as
in `engine.py`; prompts are part of the time. Each batch is measured with and without log-probs, and the best of two
runs counts, after one run that does not. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import time
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a Hugging Face folder")
    parser.add_argument("--batches", default="256", help="numbers of requests, with commas between them")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of a prompt, and of a reply")
    parser.add_argument("--memory", type=float, default=0.5, help="share of the GPU's memory")
    args = parser.parse_args()
    flashinfer = importlib.util.find_spec("flashinfer") is not None
    if not flashinfer:  # vLLM expects it for sampling, and does not start without it unless it is told so
        os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    import vllm

    batches = [int(text) for text in args.batches.split(",")]
    with open(f"{args.folder}/config.json", encoding="utf-8") as file:
        vocabulary = json.load(file)["vocab_size"]
    began = time.perf_counter()
    llm = vllm.LLM(
        model=args.folder, skip_tokenizer_init=True, max_model_len=2 * args.tokens + 16, max_num_seqs=max(batches),
        gpu_memory_utilization=args.memory, enable_prefix_caching=False,
    )  # fmt: skip
    started = time.perf_counter() - began
    rows = []
    for batch in batches:
        rng = random.Random(0)
        ids = [[rng.randrange(10, vocabulary) for _ in range(args.tokens)] for _ in range(batch)]
        prompts = [{"prompt_token_ids": one} for one in ids]
        for logprobs in (0, None):
            found = rate(vllm, llm, prompts, args.tokens, logprobs)
            rows.append({"batch": batch, "logprobs": logprobs is not None, **found})
    print(json.dumps({"version": vllm.__version__, "flashinfer": flashinfer, "start": started, "rows": rows}))


def rate(vllm: Any, llm: Any, prompts: list[Any], new: int, logprobs: int | None) -> dict[str, float]:
    """Seconds of the best of two runs; `logprobs` 0 asks for that of the sampled token."""
    how = vllm.SamplingParams(temperature=1.0, max_tokens=new, ignore_eos=True, detokenize=False, logprobs=logprobs)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        done = llm.generate(prompts, how, use_tqdm=False)
        times.append(time.perf_counter() - began)
        made = [len(one.outputs[0].token_ids) for one in done]
        assert made == [new] * len(prompts), made
    return {"seconds": min(times[1:]), "tokens_per_second": len(prompts) * new / min(times[1:])}


if __name__ == "__main__":
    main()
