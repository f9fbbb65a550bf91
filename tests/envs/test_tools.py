"""The tools of environments: each answers, limits its own work, and explains a caller's mistake in words."""

from __future__ import annotations

import pytest

from interplay.envs import make, sample_task, tools
from interplay.envs.tasks import shop
from interplay.errors import SandboxError


def test_the_calculator() -> None:
    tool = tools.calculator()
    assert tool.run(expression="(12 + 7) * 3") == "57"
    assert tool.run(expression="9**9**9").startswith("error: ")
    assert tool.run(expression="import os").startswith("error: ")


def test_sql_shows_a_few_rows() -> None:
    tool = tools.sql(shop.database(1, 30), rows=2)
    assert tool.run(query="SELECT purchase_id FROM purchase").splitlines() == ["purchase_id", "1", "2", "… (30 rows)"]
    assert tool.run(query="DROP TABLE purchase").startswith("error: ")


def test_search_shows_passages() -> None:
    tool = tools.search(lambda query: [("Bern", "a town " * 200)] if query == "Bern" else [])
    assert tool.run(query=" Bern ").startswith("[1] Bern: a town") and len(tool.run(query="Bern")) < 700
    assert tool.run(query="Cork") == "nothing"


def test_python_runs_in_the_sandbox() -> None:
    tool, brief = tools.python(seconds=20.0), tools.python(seconds=1.0)
    try:
        assert tool.run(code="print(6 * 7)").strip() == "42"
    except SandboxError as error:
        pytest.skip(f"no sandbox on this machine: {error}")
    assert tool.run(code="x = 1") == "(it printed nothing)"
    assert tool.run(code="print(1)\n1 / 0") == "1\n\nerror: ZeroDivisionError: division by zero"
    assert brief.run(code="while True: pass").startswith("error: ")
    assert "PATH" not in tool.run(code="import os\nprint(dict(os.environ).get('PATH', 'none'))")


def test_math_and_search_hand_them_out() -> None:
    seen = make(sample_task("math", {"team": "single", "tools": ["calculator"]})).observe()
    assert [t.name for t in seen["reasoner"].tools] == ["calculator"]
    assert not make(sample_task("math", {"team": "single"})).observe()["reasoner"].tools
    env = make(sample_task("search", {"tools": True}))
    env.step({"searcher": "done"})
    (tool,) = env.observe()["reader"].tools
    assert tool.run(query="Lars Grau").startswith("[1] ")
    assert tool.run(query="town") == "nothing"  # too many passages fit equally well
