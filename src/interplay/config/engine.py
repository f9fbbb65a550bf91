"""[engine]: the software that samples the replies of the local policies of a run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from interplay.config.section import Section
from interplay.errors import ConfigError

# Arguments of a vLLM server that a run sets, and the key of the recipe that changes them. Without a key nothing can
# change them: the log-probs would not be those of the sampled distribution, or the run would not find the server.
_SET_BY_RUN = {
    **dict.fromkeys(("--model", "--served-model-name"), "policies.NAME.base"),
    "--dtype": "dtype",
    "--max-model-len": "engine.context",
    "--max-num-seqs": "engine.concurrency",
    "--gpu-memory-utilization": "engine.gpu_share",
    **dict.fromkeys(("--tensor-parallel-size", "-tp"), "engine.tensor_parallel"),
    **dict.fromkeys(("--enable-lora", "--max-loras", "--max-lora-rank"), "policies.NAME.adapter"),
    **dict.fromkeys(("--host", "--port", "--enable-scale-out", "--worker-extension-cls"), ""),
    **dict.fromkeys(("--logprobs-mode", "--logits-processors"), ""),
    **dict.fromkeys(("--generation-config", "--override-generation-config"), ""),
}


class EngineSection(Section):
    """The engine that samples replies. `local` samples in this process, from the learner's own tensors. `vllm` samples
    on a vLLM server: the run starts one for each base model, or uses one that is already running. `sglang` samples on
    an SGLang server that is already running."""

    kind: Literal["local", "vllm", "sglang"] = Field("local", description="the engine that samples replies")
    url: str | None = Field(
        None, description="vllm, sglang: a server that is already running, such as http://host:8000"
    )
    python: str | None = Field(None, description="vllm: the Python that has vLLM installed; default: this one")
    options: list[str] = Field(
        [],
        description="vllm: more arguments for the command line of a server that the run starts; arguments that the run "
        "sets itself are refused",
    )
    variables: dict[str, str] = Field(
        {}, description="vllm: more environment variables for a server that the run starts"
    )
    tensor_parallel: int = Field(1, ge=1, description="vllm: number of GPUs over which a server splits a model")
    gpu_share: float = Field(
        0.4, gt=0, le=1, description="vllm: share of a GPU's memory that a server may use for weights and cache"
    )
    context: int | None = Field(
        None, ge=2, description="vllm: largest number of tokens of prompt and reply together; default: the model's"
    )
    concurrency: int = Field(
        256, ge=1, description="vllm, sglang: how many sequences a server may sample at the same time"
    )
    start_timeout: float = Field(900.0, gt=0, description="vllm: how many seconds a server may take to start")
    timeout: float = Field(600.0, gt=0, description="vllm, sglang: how many seconds one reply may take")
    transfer: Literal["folder", "gloo", "nccl", "ipc"] = Field(
        "folder",
        description="vllm: how new weights reach a server: files in a folder, a broadcast from host memory (gloo) or "
        "from another GPU (nccl), or the learner's memory on the same GPU (ipc)",
    )
    in_flight: bool = Field(
        True,
        description="vllm, sglang: replies in progress go on with the new weights; false: an update waits until they "
        "have ended",
    )
    update_timeout: float = Field(
        120.0, gt=0, description="vllm, sglang: how many seconds an update of the weights may take"
    )
    speculate: Literal["off", "on", "auto"] = Field(
        "off",
        description="local: guess the next tokens from earlier replies to the same prompt, from the replies that are "
        "sampled beside it and from the prompt, and check several guesses in one step. The replies stay the same, "
        "because every token is still sampled. on: whenever there is a guess; auto: only in small batches, and only "
        "while enough guesses are right",
    )
    speculate_tokens: int = Field(4, ge=1, le=64, description="local: how many tokens may be guessed at a time")

    @model_validator(mode="after")
    def _belongs_to_its_kind(self) -> EngineSection:
        kinds = {"url": ("vllm", "sglang")} | dict.fromkeys(("python", "context", "options", "variables"), ("vllm",))
        for key in (key for key, kinds_of_key in kinds.items() if getattr(self, key) and self.kind not in kinds_of_key):
            expected = " or ".join(f"'{kind}'" for kind in kinds[key])
            raise ConfigError(
                f"engine.{key} is set, but engine.kind is '{self.kind}'; expected engine.kind = {expected}."
            )
        for option in self.options:
            name = option.partition("=")[0].replace("_", "-")  # vLLM reads --max_loras as --max-loras
            if option.startswith("-") and name in _SET_BY_RUN:
                key = _SET_BY_RUN[name]
                raise ConfigError(
                    f"engine.options has '{option}', which the run sets itself; expected "
                    + (f"{key} instead." if key else "no such option.")
                )
        if self.speculate != "off" and self.kind != "local":
            raise ConfigError(
                f"engine.speculate is '{self.speculate}', but engine.kind is '{self.kind}'; expected engine.kind = "
                "'local', or engine.speculate = 'off'. Set a server's own speculation with its own options."
            )
        if self.kind == "sglang" and self.url is None:
            raise ConfigError(
                "engine.kind is 'sglang' without engine.url; start an SGLang server and set engine.url to its address, "
                "such as http://127.0.0.1:30000."
            )
        if self.transfer != "folder" and self.kind != "vllm":
            raise ConfigError(
                f"engine.transfer is '{self.transfer}', but engine.kind is '{self.kind}'; expected "
                "engine.kind = 'vllm', or engine.transfer = 'folder'."
            )
        if self.transfer == "ipc" and self.tensor_parallel > 1:
            raise ConfigError(
                f"engine.transfer is 'ipc' with engine.tensor_parallel = {self.tensor_parallel}, but the learner's "
                "memory is on one GPU; expected engine.transfer = 'folder', 'gloo' or 'nccl'."
            )
        return self
