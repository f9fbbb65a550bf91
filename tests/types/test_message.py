"""Messages, and the pictures and sounds that belong to them."""

from __future__ import annotations

import itertools

from interplay.types import Media, Message, ToolCall

CAT, DOG = Media("image", b"cat"), Media("image", b"dog")


def test_media_are_known_by_a_digest_of_their_kind_and_bytes() -> None:
    """It is the same everywhere and always, because records name files by it."""
    assert CAT.digest == "640ff1467f05b127f8e9027a5d7a5a46"  # a stored name: changing it loses the media of every run
    assert Media("image", b"cat") == CAT and hash(CAT) == hash(Media("image", b"cat"))
    assert len({CAT.digest, DOG.digest, Media("audio", b"cat").digest}) == 3
    assert CAT != DOG and Media("audio", b"cat") != CAT


def test_media_read_by_their_digest_are_the_same_media() -> None:
    assert Media("image", b"cat", CAT.digest) == CAT
    assert "cat" not in repr(CAT), "a log shows the digest, not the bytes"


def test_messages_that_differ_in_anything_are_unequal_and_equal_ones_have_equal_hashes() -> None:
    call = ToolCall("1", "ask", "{}")
    different = [
        Message("user", "hi"),
        Message("assistant", "hi"),
        Message("user", "ho"),
        Message("user", "hi", "Ann"),
        Message("user", "hi", tool_calls=(call,)),
        Message("user", "hi", tool_calls=(call, call)),
        Message("user", "hi", tool_call_id="1"),
        Message("user", "hi", media=(CAT,)),
        Message("user", "hi", media=(DOG,)),
        Message("user", "hi", media=(CAT, DOG)),
    ]
    assert all(one != other for one, other in itertools.combinations(different, 2))
    assert len(set(different)) == len(different)
    again = Message("user", "hi", media=(Media("image", b"cat"),))
    assert again == different[7] and hash(again) == hash(different[7])


def test_the_words_of_a_message_are_all_but_its_media() -> None:
    plain = Message("tool", "hi", "Ann", (ToolCall("1", "ask", "{}"),), "1")
    assert Message("tool", "hi", "Ann", (ToolCall("1", "ask", "{}"),), "1", (CAT,)).words == plain
    assert plain.words is plain


def test_a_message_can_be_reduced_to_the_media_that_a_model_takes() -> None:
    hum = Media("audio", b"hum")
    both = Message("user", "hi", media=(CAT, hum))
    assert both.only({"image"}).media == (CAT,) and both.only({"audio"}).media == (hum,)
    assert both.only({"image", "audio"}) is both
