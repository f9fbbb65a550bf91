"""Pictures and sounds that a program sends reach a model that sees and hears, and are known by their digests."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from sighted import picture, sound

from interplay import envs
from interplay.envs.programs.talk import WireError, messages_of
from interplay.errors import ConfigError
from interplay.rollout import episode_json
from interplay.types import Message, Task


@pytest.fixture
def shows(tmp_path: Path) -> Task:
    """A program that sends two pictures and a sound."""
    media = tmp_path / "media.json"
    media.write_text(json.dumps([base64.b64encode(m.data).decode() for m in (picture(1), picture(2), sound(1))]))
    how = {"environment": {"MEDIA": str(media)}, "readable": [str(media)]}
    options = {"function": "commands:shows", "reward": "commands:length", "roles": ["planner"], "program": how}
    return envs.sample_task("program", options)


def test_a_program_shows_pictures_and_sounds_to_a_seat(sighted: Any, shows: Task) -> None:
    """The same picture continues the earlier prompt. Another picture under the same words does not."""
    (episode,) = sighted.play([shows])
    assert episode.error is None
    first, again, changed = (turn.last for turn in episode.turns)
    assert [m.digest for m in first.media] == [picture(1).digest, sound(1).digest]
    assert [m.digest for m in changed.media] == [picture(2).digest, sound(1).digest]
    assert [s.history for s in (first, again, changed)] == ["new", "kept", "edited"]
    assert again.prompt[: len(first.prompt)] == first.prompt and again.extends == first.id
    assert {m.digest for m in episode_json.media(episode)} == {picture(1).digest, picture(2).digest, sound(1).digest}


def test_a_seat_that_takes_only_text_refuses_them_with_a_sentence(players: Any, shows: Task) -> None:
    with pytest.raises(ConfigError, match=r"kind audio and image to the role 'planner'.*takes only text"):
        players.play([shows])


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, "names a picture elsewhere"),
        ({"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AAAA"}}, "format 'jpeg'; expected png"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, "its bytes are not"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}, "format 'mp3'; expected wav"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "its bytes are not"),
    ],
)
def test_what_is_no_picture_or_sound_is_refused_with_a_sentence(part: dict[str, Any], words: str) -> None:
    with pytest.raises(WireError, match=words):
        messages_of([{"role": "user", "content": [part]}])


def test_the_responses_api_writes_pictures_in_its_own_way() -> None:
    url = f"data:image/png;base64,{base64.b64encode(picture(1).data).decode()}"
    (message,) = messages_of([{"role": "user", "content": [{"type": "input_image", "image_url": url}]}])
    assert message == Message("user", "", media=(picture(1),))
