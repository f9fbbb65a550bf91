"""Samples in token tries: prompts that differ in a picture share nothing from there on, even with equal ids."""

from __future__ import annotations

import torch
from runs import example, resampled

from interplay.training.batch import micro_batches
from interplay.training.tries import Example, Trie, by_policy, lay, order
from interplay.types import Episode, Keys, MediaSpan, Observation, Sample, Task, Turn

CAT, DOG = (MediaSpan(1, 2, "ca7"),), (MediaSpan(1, 2, "d09"),)
PROMPT, REPLY = (5, 9, 9, 6), (7, 8)


def place(trie: Trie, index: int) -> tuple[int, int]:
    spot = trie.spots[index]
    return spot.row, spot.prompt


def seeing(
    name: str, media: tuple[MediaSpan, ...], prompt: tuple[int, ...] = PROMPT, extends: str | None = None
) -> Example:
    return resampled(example(name, prompt, REPLY, extends), media=media)


def test_promise_12_equal_ids_with_different_pictures_never_share_a_node() -> None:
    examples = [seeing("cat", CAT), seeing("dog", DOG), seeing("cat again", CAT), seeing("blind", ())]
    trie = lay(examples)
    cat, dog, again, blind = (place(trie, i) for i in range(4))
    assert cat == again and len({cat, dog, blind}) == 3
    assert trie.spots[0].action == trie.spots[2].action, "equal replies to one prompt are one node"
    assert len(trie.rows) == 3 and trie.size == 3 * (len(PROMPT) + len(REPLY))
    batches = list(micro_batches(trie, examples, 10_000, torch.device("cpu")))
    assert sum(len(b.target_M) for b in batches) == 3 * len(REPLY), "each picture has predictions of its own"


def test_promise_12_a_sample_hangs_below_the_one_it_extends_only_where_it_shows_the_same_picture() -> None:
    """The ids of both second turns continue those of both first ones; only the pictures distinguish them."""
    longer = (*PROMPT, *REPLY, 4)
    examples = [
        seeing("cat", CAT),
        seeing("dog", DOG),
        seeing("cat 2", CAT, longer, "cat"),
        seeing("dog 2", DOG, longer, "dog"),
        seeing("swapped", DOG, longer, "cat"),
    ]
    trie = lay(examples)
    assert [spot.row for spot in trie.spots] == [0, 1, 0, 1, 1]
    assert place(trie, 3) == place(trie, 4), "what it shows counts, whatever it says that it extends"
    whole = len(PROMPT) + len(REPLY) + 1 + len(REPLY)
    assert [row.length for row in trie.rows] == [whole, whole]


def test_turns_are_split_by_policy_and_ordered_by_play() -> None:
    """Playouts and other policies are left out; a turn comes after the one it extends."""

    def turn(name: str, decision: int, policy: str = "a", playout: int | None = None, candidate: int = 0) -> Turn:
        keys = Keys("t", 0, "t#0", decision, "X", "", "", "")
        sample = Sample(name, (1,), (2,), (0.0,), (0,), "")
        return Turn(name, None, keys, policy, "", Observation(()), (sample,), candidate=candidate, playout=playout)

    turns = [
        turn("2", 1),
        turn("1", 0, candidate=1),
        turn("0", 0),
        turn("b", 0, "b"),
        turn("p", 0, playout=0),
        turn("c", 0, "c"),
    ]
    found = by_policy([Episode("t#0", Task("t", "e", 0), 0, {}, turns)], ["a", "b"])
    assert {name: [t.id for t in sorted(mine, key=order)] for name, mine in found.items()} == {
        "a": ["0", "1", "2"],
        "b": ["b"],
    }


def test_an_example_has_a_signal_where_some_token_has_an_advantage() -> None:
    signals = {1.0: True, -0.5: True, 0.0: False, None: False, (0.0, 0.0): False, (0.0, -1.0): True}
    assert {a: example("x", (1,), (2, 3), advantage=a).has_signal for a in signals} == signals
