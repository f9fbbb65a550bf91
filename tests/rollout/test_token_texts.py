"""The texts of recorded ids: joined, they are the tokenizer's own text; each is shown with the token that completes
it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from interplay.errors import InterplayError
from interplay.models.tiny import VOCABULARY, build_tokenizer
from interplay.rollout.token_texts import TokenTexts

BYTES = build_tokenizer().backend_tokenizer
PIECES = ["<unk>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "▁the", "▁cat", "s", "é", "▁▁", "�"]


def sentence_pieces() -> Tokenizer:
    """Like Llama's tokenizer: spaces come before words, the first one is stripped, and unknown characters are bytes."""
    vocabulary = {piece: i for i, piece in enumerate(PIECES)}
    made = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(parts)
    return made


SPACES = sentence_pieces()


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> TokenTexts:
    folder = tmp_path_factory.mktemp("run")
    (folder / "tokenizers").mkdir()
    BYTES.save(str(folder / "tokenizers" / "bytes.json"))
    SPACES.save(str(folder / "tokenizers" / "spaces.json"))
    return TokenTexts(folder)


BYTE_IDS = st.lists(st.integers(0, VOCABULARY - 1), max_size=40) | st.text(max_size=20).map(
    lambda t: BYTES.encode(t).ids
)
SPACE_IDS = st.lists(st.integers(257, len(PIECES) - 1), max_size=300) | st.lists(
    st.integers(0, len(PIECES) - 1), max_size=20
)


@settings(max_examples=200)
@given(BYTE_IDS, SPACE_IDS)
def test_the_texts_of_tokens_are_together_the_text_of_all(
    texts: TokenTexts, byte_ids: list[int], space_ids: list[int]
) -> None:
    """Texts with broken characters, ids without text, special tokens, leading spaces, and long texts."""
    for name, ids, tokenizer in (("bytes", byte_ids, BYTES), ("spaces", space_ids, SPACES)):
        found = texts.of(name, ids)
        assert len(found) == len(ids)
        assert "".join(found) == tokenizer.decode(ids, skip_special_tokens=False)


def test_a_character_of_several_tokens_is_shown_with_the_last_of_them(texts: TokenTexts) -> None:
    ids = BYTES.encode("a🙂b").ids
    assert len(ids) == 6 and texts.of("bytes", ids) == ["a", "", "", "", "🙂", "b"]
    assert texts.of("bytes", ids[:3]) == ["a", "�", ""], "cut off in the middle"
    bytes_of_e = [PIECES.index(f"<0x{b:02X}>") for b in "€".encode()]
    the = PIECES.index("▁the")
    assert texts.of("spaces", [the, *bytes_of_e, the]) == ["the", "", "", "€", " the"]


def test_tokens_keep_their_texts_however_long_the_whole_is(texts: TokenTexts) -> None:
    """The first token of a text has no space before it, and every other one has."""
    the = PIECES.index("▁the")
    assert texts.of("spaces", [the] * 400) == ["the"] + [" the"] * 399
    ids = BYTES.encode("rock paper 5 " * 100).ids
    assert texts.of("bytes", ids) == [BYTES.decode([i]) for i in ids]


def test_a_snapshots_tokens_are_its_policys(texts: TokenTexts) -> None:
    ids = BYTES.encode("rock").ids
    assert texts.of("bytes@start", ids) == texts.of("bytes@12", ids) == texts.of("bytes", ids)


def test_a_missing_tokenizer_is_named(texts: TokenTexts) -> None:
    with pytest.raises(
        InterplayError, match=r"nobody\.json' is missing, so the tokens of 'nobody' cannot be shown as text"
    ):
        texts.of("nobody", [1])


def test_reading_token_texts_needs_neither_torch_nor_transformers(tmp_path: Path) -> None:
    (tmp_path / "tokenizers").mkdir()
    BYTES.save(str(tmp_path / "tokenizers" / "player.json"))
    program = """
import json, sys
from pathlib import Path
from interplay.rollout import records
from interplay.rollout.token_texts import TokenTexts
print(json.dumps(TokenTexts(Path(sys.argv[1])).of("player", list(map(int, sys.argv[2:])))))
print([m for m in ("torch", "transformers") if m in sys.modules])
"""
    ids = BYTES.encode("hi 🙂").ids
    command = [sys.executable, "-c", program, str(tmp_path), *map(str, ids)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    texts, heavy = done.stdout.splitlines()
    assert "".join(json.loads(texts)) == "hi 🙂" and heavy == "[]"
