"""Loads and saves the processor of a model that sees or hears.

The processors of Qwen2-VL, Qwen2.5-VL and SmolVLM also have a part for videos, which needs torchvision. Interplay only
shows pictures, so it builds these processors without that part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoImageProcessor, AutoProcessor, AutoTokenizer, Idefics3Processor, ProcessorMixin


class PictureProcessor(ProcessorMixin):
    """Qwen2-VL's processor without videos: as many placeholders as merged patches."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: str | None = None) -> None:
        self.image_token = "<|image_pad|>"
        self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
        super().__init__(image_processor, tokenizer, chat_template=chat_template)

    def replace_image_token(self, image_inputs: Any, image_idx: int, **kwargs: Any) -> str:
        patches = int(image_inputs["image_grid_thw"][image_idx].prod())
        return self.image_token * (patches // self.image_processor.merge_size**2)


def load_processor(source: str, kind: str) -> Any:
    """The processor of a model of type `kind` in folder or hub name `source`."""
    if kind not in ("qwen2_vl", "qwen2_5_vl", "smolvlm"):
        return AutoProcessor.from_pretrained(source, trust_remote_code=False)
    images = AutoImageProcessor.from_pretrained(source, trust_remote_code=False)
    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    papers, _ = ProcessorMixin.get_processor_dict(source)
    template = papers.get("chat_template") or tokenizer.chat_template
    if kind == "smolvlm":  # the same tokens as in Idefics3
        return Idefics3Processor(images, tokenizer, papers.get("image_seq_len", 169), chat_template=template)
    return PictureProcessor(images, tokenizer, template)


def save_processor(processor: Any, folder: Path) -> None:
    """Write a processor so that plain transformers can load it."""
    if isinstance(processor, PictureProcessor):
        processor.tokenizer.chat_template = processor.chat_template
        processor.image_processor.save_pretrained(folder)
        processor.tokenizer.save_pretrained(folder)
    else:
        processor.save_pretrained(folder)
