"""Without math-verify, a math run is refused before its first episode, not when an answer happens to be a formula."""

from __future__ import annotations

import pytest

from interplay import envs
from interplay.errors import ConfigError
from interplay.rewards import algebra


@pytest.mark.parametrize("team", ["single", "pair", "relay", "debate"])
def test_a_task_is_refused_with_the_remedy(team: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert envs.sample_task("math", {"team": team}).env == "math"
    monkeypatch.setattr(algebra, "find_spec", lambda name: None)
    algebra.require.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install 'interplay\[math\]'"):
        envs.sample_task("math", {"team": team})
