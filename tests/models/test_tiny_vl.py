"""`tiny-vl` is an ordinary LLaVA folder, made from a seed and a shape."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMultimodalLM, AutoProcessor, LlavaForConditionalGeneration

from interplay.agents.render import Renderer
from interplay.envs.picture import Look, draw
from interplay.errors import ModelError
from interplay.models import senses
from interplay.models.load import load
from interplay.models.locate import locate
from interplay.types import Media, Message

pytest.importorskip("PIL")
LOOKS = {"a": Look((255, 255, 255)), "b": Look((0, 0, 0), (200, 0, 0), "disc")}


def test_tiny_vl_is_a_plain_hugging_face_folder(private_cache: None) -> None:
    folder = Path(locate("tiny-vl", 0))
    assert locate("tiny-vl-64x3x32", 0) == str(folder) != locate("tiny-vl", 1)
    assert "interplay" not in (folder / "config.json").read_text()
    theirs = AutoModelForMultimodalLM.from_pretrained(folder).eval()
    assert type(theirs) is LlavaForConditionalGeneration
    assert AutoProcessor.from_pretrained(folder).image_token == "<image>"
    ours = load("tiny-vl", "cpu", torch.float32, 0)
    assert ours.senses is not None and ours.senses.kinds == {"image"}
    renderer = Renderer(ours.tokenizer, ours.stop_ids, ours.senses)
    board = draw("a b a b\nb b a a\na a a a\nb a b a", LOOKS, 8)
    prompt = renderer.prompt((Message("user", "see", media=(Media("image", board),)),))
    assert prompt.text == "<|user|><image>see<|end|><|assistant|>"
    assert [(m.start, m.length) for m in prompt.media] == [(1, 16)], "one token for each cell"


def test_one_cell_is_one_patch(private_cache: None) -> None:
    """A change in one cell changes the input of one patch: the picture is not blurred by resizing."""
    sight = load("tiny-vl-32x1x16", "cpu", torch.float32, 0).senses
    assert sight is not None
    one, other = (
        sight._perceived("", Media("image", draw(board, LOOKS, 8))).inputs["pixel_values"][0]
        for board in ("a a\na a", "a a\nb a")
    )
    changed = (one != other).any(0).unflatten(0, (2, 8)).unflatten(2, (2, 8)).transpose(1, 2).flatten(2).any(2)
    assert changed.tolist() == [[False, False], [True, False]]


def test_kept_pictures_never_exceed_their_limit(private_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit was once checked only at every 64th picture, and large pictures could exceed it by gigabytes."""
    found = load("tiny-vl-32x1x16", "cpu", torch.float32, 0)
    held = found.senses
    assert held is not None
    renderer = Renderer(found.tokenizer, found.stop_ids, held)
    boards = [Media("image", draw(f"{a} {b}\n{c} a", LOOKS, 8)) for a in "ab" for b in "ab" for c in "ab"]
    (first,) = renderer.prompt((Message("user", "see", media=(boards[0],)),)).media
    before = held.features([first])[first.digest]
    (one,) = held._known.values()
    monkeypatch.setattr(senses, "KEPT_BYTES", 10 * one.size)
    for board in boards:  # what is kept of a picture is first its pixels, which are larger, and then its features
        held.features(renderer.prompt((Message("user", "see", media=(board,)),)).media)
        assert held._size == sum(known.size for known in held._known.values()) <= 10 * one.size
    assert first.digest not in held._known and len(held._known) > 1
    assert torch.equal(held.features([first])[first.digest], before)


@pytest.mark.parametrize("base", ["tiny-vl-64", "tiny-vl-60x3x32", "tiny-vl-64x3x30", "tiny-vl-0x1x8"])
def test_a_shape_that_cannot_be_made_is_refused(base: str) -> None:
    with pytest.raises(ModelError, match="is not the name of a tiny-vl model; expected"):
        locate(base, 0)
