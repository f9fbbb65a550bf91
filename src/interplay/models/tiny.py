"""`tiny`: a Llama model with random weights and a small tokenizer, saved as an ordinary Hugging Face folder.

It is made locally, so that everything can be tried on a laptop without a download. Its tokenizer has single tokens for
the words of the built-in games and spells everything else byte by byte, so any text can be encoded.
"""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
_WORDS = """
Play tic-tac-toe three four five in a row wins Reply with the number of an empty cell free You are yours theirs
your Your move All players at once one word or and not no yes Payoffs Last round cooperate defect stag hare heads
tails rock paper scissors p0 p1 p2 p3 is it to for you I can see card cards hand hint play discard turn player
last first
"""
_POKER = "pass bet"  # added at the end, so that older tokens keep their ids
VOCABULARY = 640


def _pieces() -> list[str]:
    """The pieces in a fixed order: bytes; single characters with a leading space; words, with and without one."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    space = "Ġ"  # how the byte-level alphabet writes a space; "Ċ" is a newline
    singles = [f"{space}{c}" for c in "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ?:|.#@$-+*="]
    marks = [f"{mark}{n}" for mark in "#@XO" for n in range(1, 10)]  # taken cells of a board
    words = list(itertools.chain.from_iterable((w, space + w) for w in [*_WORDS.split(), *marks]))
    poker = itertools.chain.from_iterable((w, space + w) for w in _POKER.split())
    return list(dict.fromkeys([*alphabet, *singles, *words, f".{'Ċ'}", f":{'Ċ'}", *poker]))


def build_tokenizer() -> PreTrainedTokenizerFast:
    pieces = _pieces()
    if len(SPECIAL) + len(pieces) > VOCABULARY:
        raise ValueError(f"tiny's vocabulary has {len(pieces)} pieces; expected at most {VOCABULARY - len(SPECIAL)}.")
    # The unigram model takes the split with the best total score; with equal costs that is the one with fewest tokens.
    vocabulary = [(t, 0.0) for t in SPECIAL] + [(p, -1.0 - 0.001 * (len(p) == 1)) for p in pieces]
    raw = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=False))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<|pad|>", eos_token="<|end|>")
    tokenizer.padding_side = "left"
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def config(hidden: int, layers: int, heads: int = 4) -> LlamaConfig:
    special = {token: i for i, token in enumerate(SPECIAL)}
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        pad_token_id=special["<|pad|>"],
        eos_token_id=special["<|end|>"],
        bos_token_id=None,
        initializer_range=0.1,
        # Positions in short prompts must be easy to tell apart; with the usual 10,000, boards are learned more slowly.
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
    )


def fingerprint(hidden: int, layers: int, heads: int = 4) -> str:
    """A hash of everything a tiny model is made from, so that another version of this file uses another folder."""
    made = (sorted(config(hidden, layers, heads).to_dict().items()), SPECIAL, TEMPLATE, _pieces())
    return hashlib.blake2b(repr(made).encode(), digest_size=4).hexdigest()


def build(folder: Path, seed: int, hidden: int = 64, layers: int = 2, heads: int = 4) -> None:
    """Write the model and tokenizer to `folder`. The weights depend only on `seed` and the shape."""
    tokenizer = build_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config(hidden, layers, heads))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
