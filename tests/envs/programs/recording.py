"""Records what a framework really sends: `python tests/envs/programs/recording.py NAME PYTHON`, from the repository.

The program of examples/frameworks runs for one task in PYTHON's environment and is answered by `reply`: it calls a tool
once where one is offered, and otherwise says a sentence. Every request is kept in recorded/NAME.json as it came.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from interplay import envs
from interplay.config import load
from interplay.envs.programs.program import OutsideProgram
from interplay.envs.programs.run import Inquiry
from interplay.envs.programs.server import ChatRouter
from interplay.types import Rewards, Spoken, ToolCall, Turn

FOLDER = Path(__file__).parent / "recorded"
ROOT = Path(__file__).parents[3]


def reply(asked: Inquiry) -> Spoken:
    """The same for the same, whoever asks."""
    used = any(m.role == "tool" for m in asked.messages) or any("Observation" in m.content for m in asked.messages)
    if asked.call.tools and not used:
        tools = [json.loads(t)["function"] for t in asked.call.tools]
        tool = next((t for t in tools if t["name"] == "add"), tools[0])
        properties = (tool.get("parameters") or {}).get("properties") or {}
        given = {n: 2 if p.get("type") == "integer" else f"the {n}" for n, p in properties.items()}
        if "to_agent" in given:
            given["to_agent"] = "solver"
        return Spoken("I call it.", (ToolCall(f"call_{asked.digest[:8]}", tool["name"], json.dumps(given)),))
    return Spoken(f" The answer is {len(asked.messages)}.\n")


class _Fixed(OutsideProgram):
    """Answers of `reply`, with their calls."""

    def answer_all(self) -> None:
        while self.observe():
            said = {role: reply(asked) for role, asked in self.waiting.items()}
            turns = {role: _turn(role, spoken) for role, spoken in said.items()}
            self.act(turns)

    def rewarded(self, result: Any, calls: Any) -> Rewards:
        return Rewards()


def _turn(role: str, spoken: Spoken) -> Turn:
    from interplay.types import Keys, Observation

    keys = Keys("", 0, "", 0, role, "", "", "")
    return Turn("", None, keys, "recorded", spoken.content, Observation(()), spoken=spoken)


def record(name: str, python: str) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    routed = ChatRouter._routed

    async def noted(self: ChatRouter, request: Any, what: str, answerer: Any) -> Any:
        if request.method == "POST":
            kept = {k: v for k, v in request.headers.items() if k.startswith("x-stainless-retry")}
            sent.append({"path": what, "headers": kept, "body": json.loads(request.body)})
        return await routed(self, request, what, answerer)

    ChatRouter._routed = noted  # type: ignore[method-assign]
    recipe = load(ROOT / "recipes" / "programs" / f"{name}.toml", [f'env.program.python="{python}"'])
    env = _Fixed(envs.sample_task("program", recipe.env.options))
    env.answer_all()
    ChatRouter._routed = routed  # type: ignore[method-assign]
    return sent


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    found = record(sys.argv[1], sys.argv[2])
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{sys.argv[1]}.json").write_text(json.dumps(found, indent=1) + "\n")
    print(sys.argv[1], len(found), "requests")
