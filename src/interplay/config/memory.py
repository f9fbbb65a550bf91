"""[memory]: how much of a device's memory a run may take."""

from __future__ import annotations

from pydantic import Field

from interplay.config.section import Section


class MemorySection(Section):
    """How much of the GPU's memory a run may take, and what the key-value cache of the local engine is sized for."""

    share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of the device's memory that this run may take. On a GPU the limit is enforced, so that "
        "several runs can use one GPU; on a CPU a run that needs more is refused",
    )
    prompt_tokens: int | None = Field(
        None,
        ge=1,
        description="on a GPU: how long prompts usually get. The key-value cache has room for this many prompt tokens, "
        "and a reply, of each episode in flight. Longer prompts work too, but fewer episodes at a time; default: as "
        "long as the model allows",
    )
