"""Samples never change, and prompts that differ in a picture are different prompts."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interplay.types import MediaSpan, Sample, identity

CAT, DOG = "ca7" + "0" * 29, "d09" + "0" * 29
SAMPLE = Sample("s", (1, 9, 9, 2), (3, 4), (-0.5, -1.0), (7, 8), "hi", media=(MediaSpan(1, 2, CAT),))


@pytest.mark.parametrize("name", [f.name for f in fields(Sample)])
def test_nothing_in_a_sample_can_be_changed(name: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(SAMPLE, name, None)
    assert not hasattr(SAMPLE, "__dict__")


def test_equal_ids_with_different_pictures_are_different_prompts() -> None:
    other = replace(SAMPLE, media=(MediaSpan(1, 2, DOG),))
    assert SAMPLE.prompt == other.prompt and SAMPLE.identity != other.identity
    assert replace(SAMPLE, media=()).identity == SAMPLE.prompt
    assert other.identity != SAMPLE.prompt != SAMPLE.identity
    assert SAMPLE.identity == replace(SAMPLE, id="t", action=()).identity


DIGEST = st.sampled_from([CAT, DOG, "1", "f" * 32])


@st.composite
def prompts(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[MediaSpan, ...]]:
    """Prompts over two tokens and a few pictures of one to three placeholders, so that many are equal."""
    ids: list[int] = []
    spans = []
    for part in draw(st.lists(st.integers(5, 6) | DIGEST, max_size=5)):
        if isinstance(part, str):
            length = draw(st.integers(1, 3))
            spans.append(MediaSpan(len(ids), length, part))
            ids += [9] * length
        else:
            ids.append(part)
    return tuple(ids), tuple(spans)


@settings(max_examples=300)
@given(prompts(), prompts())
def test_prompts_are_the_same_exactly_where_ids_and_media_are(one: tuple, other: tuple) -> None:
    """One number for each id, so that places in the prompt and its identity correspond; ids outside of media stay."""
    assert (identity(*one) == identity(*other)) == (one == other)
    ids, spans = one
    inside = {i for span in spans for i in range(span.start, span.start + span.length)}
    known = identity(ids, spans)
    assert len(known) == len(ids)
    assert all((k < 0) == (i in inside) and (i in inside or k == ids[i]) for i, k in enumerate(known))


def test_segments_are_the_prompt_in_order() -> None:
    assert list(SAMPLE.segments) == [(1,), CAT, (2,)]
    both = replace(SAMPLE, prompt=(9, 9, 9, 5), media=(MediaSpan(0, 1, CAT), MediaSpan(1, 2, DOG)))
    assert list(both.segments) == [CAT, DOG, (5,)]
    assert list(replace(SAMPLE, prompt=(5, 9), media=(MediaSpan(1, 1, DOG),)).segments) == [(5,), DOG]
    assert list(replace(SAMPLE, media=()).segments) == [(1, 9, 9, 2)]
    assert list(replace(SAMPLE, prompt=(), media=()).segments) == []


def test_a_sample_is_as_old_as_its_oldest_token() -> None:
    assert SAMPLE.versions == (7, 8) and SAMPLE.version == 7
    assert replace(SAMPLE, action=(), logprobs=(), versions=()).version == 0


def test_the_size_of_a_reply_is_its_tokens_or_what_the_server_counted() -> None:
    assert SAMPLE.size == 2
    assert replace(SAMPLE, action=(), used=12).size == 12
