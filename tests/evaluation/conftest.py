"""Fixtures for evaluation tests that play games."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from small import RECIPE

from interplay.config import parse
from interplay.rollout.team import Team


@pytest.fixture(scope="module")
def team(private_cache: None) -> Iterator[Team]:
    team = Team(parse(RECIPE))
    yield team
    team.close()
