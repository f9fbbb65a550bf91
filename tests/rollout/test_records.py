"""Episodes on disk, and the logs that people read."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interplay.algorithms import Tree
from interplay.errors import InterplayError
from interplay.rollout import episode_json, records
from interplay.rollout.logs import GameLogs
from interplay.rollout.media import MediaFolder
from interplay.rollout.records import from_json, index, read, read_one, to_json, write
from interplay.types import (
    ByTurn,
    Credit,
    Episode,
    Keys,
    Level,
    Media,
    MediaSpan,
    Message,
    Observation,
    Outlook,
    Parameter,
    Policy,
    Remote,
    Reward,
    Rewards,
    Sample,
    Scripted,
    Status,
    Task,
    Tool,
    ToolCall,
    Turn,
)
from interplay.viewer.summary import seat_name

WORD = st.text(max_size=3)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
COUNT = st.integers(0, 99)


def several(what: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[Any]:
    return st.lists(what, max_size=most).map(tuple)


REWARDS = several(st.builds(Reward, WORD, st.sampled_from(Level), st.none() | WORD, st.none() | NUMBER)).map(Rewards)
IDS, NUMBERS = several(st.integers(0, 10**6)), several(NUMBER)
MEDIA = st.builds(Media, st.sampled_from(["image", "audio"]), st.binary(max_size=4))
MESSAGE = st.builds(
    Message, st.sampled_from(["user", "tool"]), WORD, st.none() | WORD,
    several(st.builds(ToolCall, WORD, WORD, WORD), 2), st.none() | WORD, several(MEDIA, 2),
)  # fmt: skip
PARAMETER = st.builds(Parameter, WORD, WORD, st.sampled_from(["string", "integer"]), st.booleans())
TOOL = st.builds(Tool, WORD, WORD, several(PARAMETER, 2), st.just(lambda: ""), st.floats(0, 99))
SEEN = st.builds(Observation, several(MESSAGE, 2), st.booleans(), several(WORD, 2), WORD, several(TOOL, 1))
SAMPLE = st.builds(
    Sample, st.just(""), IDS, IDS, NUMBERS, several(COUNT, 6), WORD, NUMBER, several(IDS, 2),
    several(st.builds(MediaSpan, COUNT, COUNT, WORD), 2), st.none() | WORD, several(MESSAGE, 2), WORD, COUNT, NUMBER,
)  # fmt: skip
KEYS = st.builds(Keys, WORD, COUNT, WORD, COUNT, WORD, WORD, WORD, WORD)
TURN = st.builds(
    Turn, WORD, st.none() | WORD, KEYS, WORD, WORD, SEEN, several(SAMPLE), st.sampled_from(Status), REWARDS, WORD,
    COUNT, st.booleans(), st.none() | COUNT,
    st.none() | st.builds(Outlook, REWARDS, st.dictionaries(WORD, REWARDS, max_size=2)),
)  # fmt: skip
DATA = st.dictionaries(WORD, st.none() | st.booleans() | st.integers() | NUMBER | WORD, max_size=3)
EPISODE = st.builds(
    Episode, WORD, st.builds(Task, WORD, WORD, st.integers(0, 2**63 - 1), DATA), COUNT,
    st.dictionaries(WORD, st.builds(Policy, st.just("player")), max_size=2), st.lists(TURN, max_size=2), REWARDS,
    st.booleans(), st.none(), st.none() | WORD, NUMBER, WORD, st.booleans(), st.none() | several(REWARDS),
)  # fmt: skip


@st.composite
def credited(draw: st.DrawFn) -> tuple[Episode, Credit]:
    """An episode whose samples have their own ids, and the credit that some of them were given."""
    episode, credit, made = draw(EPISODE), Credit(), 0
    for turn in episode.turns:
        samples = []
        for sample in turn.samples:
            made += 1
            new = turn.observation.messages if draw(st.booleans()) else sample.messages
            samples.append(replace(sample, id=f"{made}", messages=new))
            for table in (credit.values, credit.targets, credit.reference):
                table |= {f"{made}": draw(NUMBERS)} if draw(st.booleans()) else {}
            credit.advantages |= {f"{made}": draw(NUMBER | NUMBERS)} if draw(st.booleans()) else {}
        turn.samples = tuple(samples)
    return episode, credit


@settings(max_examples=100)
@given(credited())
def test_an_episode_and_its_credit_survive_json(made: tuple[Episode, Credit]) -> None:
    """Records that are read back are equal: every digit, every None, every special character, every picture."""
    episode, credit = made
    with tempfile.TemporaryDirectory() as folder:
        store = MediaFolder(Path(folder))
        store.put(episode_json.media(episode))
        again, given_ = from_json(json.loads(json.dumps(to_json(episode, credit))), store)
        assert (again, given_) == (episode, credit)
        assert [m.data for m in episode_json.media(again)] == [m.data for m in episode_json.media(episode)]
        assert from_json(to_json(episode), store)[1] == Credit()


@pytest.fixture
def episodes(table: Any) -> list[Episode]:
    """Two real ones: candidates, playouts, a bot."""
    plan = Tree(2, "playout")
    return table(
        lambda c: c.choose(c.free), seats={"O": "bot:first"}, plan=plan, record_playouts=True
    ).play(2)  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


@pytest.mark.parametrize("always", [True, False])
def test_a_remote_model_that_takes_some_turns_stays_remote(episodes: list[Episode], always: bool) -> None:
    who = ByTurn((Remote("far"), Policy("near"), Scripted("random")), always)
    episode = replace(episodes[0], seats=dict.fromkeys(episodes[0].seats, who))
    data = json.loads(json.dumps(to_json(episode)))
    assert {seat_name(seat) for seat in data["seats"].values()} == {str(who)}
    assert set(from_json(data, MediaFolder(Path("media")))[0].seats.values()) == {who}


def test_files_are_appended_to_and_read_back(file: Path, episodes: list[Episode]) -> None:
    given_ = Credit()
    for turn in episodes[1].turns:
        given_.give(turn, 0.25)
    write(file, episodes[:1], 1)
    write(file, episodes[1:], 2, given_)
    one, two = read(file)
    assert [one.episode, two.episode] == episodes and (one.step, two.step) == (1, 2)
    assert one.credit == Credit() and two.credit == given_ and given_.advantages
    assert one.schema == two.schema == json.loads(file.read_text().splitlines()[0])["schema"] == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line[: len(line) // 2],
        lambda line: "",
        lambda line: "null",
        lambda line: "[1, 2]",
        lambda line: '{"step": 1}',
        lambda line: '{"schema": 1, "episode": {"turns": []}}',
        lambda line: line.replace('"schema":1', '"schema":"one"'),
        lambda line: line.replace('"schema":1,', ""),
        lambda line: line.replace('"status":"ok"', '"status":"bogus"'),
        lambda line: line.replace('"decision":', '"decisoin":'),
        lambda line: line.replace('"turns":[', '"turns":["x",'),
        lambda line: line.replace('"agent"', '"nobody"'),
        lambda line: line.replace('"logprobs":[', '"logprobes":['),
    ],
)
def test_a_damaged_line_is_named(file: Path, episodes: list[Episode], damage: Any) -> None:
    """One sentence with the file and the line; the lines before it were read."""
    write(file, episodes, 1)
    first, second = file.read_text().splitlines()
    assert damage(second) != second
    file.write_text(f"{first}\n{damage(second)}\n")
    found = read(file)
    assert next(found).episode == episodes[0]
    with pytest.raises(InterplayError, match=r"episodes\.jsonl line 2 is not an episode record \(.*\); ") as caught:
        next(found)
    assert type(caught.value) is InterplayError


def test_a_newer_schema_is_refused_with_a_sentence(file: Path, episodes: list[Episode]) -> None:
    write(file, episodes[:1], 1)
    file.write_text(file.read_text().replace('"schema":1', '"schema":2'))
    says = r"line 1 has schema 2, but this version of Interplay reads schemas up to 1; use a newer version\."
    with pytest.raises(InterplayError, match=says):
        next(read(file))


def test_tools_are_recorded_and_say_that_they_cannot_be_run(file: Path, episodes: list[Episode]) -> None:
    tool = Tool("ask", "Answers.", (Parameter("what", "anything", required=False),), lambda what: "yes", 3.5)
    turn = episodes[0].turns[0]
    turn.observation = replace(turn.observation, tools=(tool,))
    write(file, episodes[:1], 1)
    (record,) = read(file)
    (found,) = record.episode.turns[0].observation.tools
    assert found == tool and found.parameters == tool.parameters
    with pytest.raises(
        InterplayError, match="read from a record cannot be run; make the environment again from its task"
    ):
        found.run(what="x")


# -- media ------------------------------------------------------------------------------------------------------------

CAT, BELL = Media("image", b"tabby"), Media("audio", b"bell")


def seeing(episode: Episode, *media: Media) -> Episode:
    turn = episode.turns[0]
    observation = replace(turn.observation, messages=(Message("user", "Look.", media=media),))
    return replace(episode, turns=[replace(turn, observation=observation)])


def test_media_are_written_once_and_records_hold_their_digests(
    file: Path, episodes: list[Episode], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    honest = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", lambda self, data: (written.append(self.name), honest(self, data))[1])
    shown = [seeing(episodes[0], CAT, CAT, BELL), seeing(episodes[1], CAT)]
    write(file, shown, 1)
    write(file, shown, 2)
    names = [f"{CAT.digest}.png", f"{BELL.digest}.wav"]
    assert sorted(p.name for p in (file.parent / "media").iterdir()) == sorted(names)
    assert len(written) == 2, "each one once, also by a second writer"
    assert (file.parent / "media" / names[0]).read_bytes() == b"tabby"
    assert "tabby" not in file.read_text() and CAT.digest in file.read_text()
    found = [r.episode for r in read(file)]
    assert found == shown * 2
    assert [m.data for m in episode_json.media(found[0])] == [b"tabby", b"tabby", b"bell"]


def test_a_picture_that_is_gone_is_named(file: Path, episodes: list[Episode]) -> None:
    write(file, [seeing(episodes[0], CAT)], 1)
    (file.parent / "media" / f"{CAT.digest}.png").unlink()
    with pytest.raises(
        InterplayError, match=rf"{CAT.digest}\.png' cannot be read \(No such file.*\), but a record refers"
    ):
        list(read(file))


# -- the index --------------------------------------------------------------------------------------------------------


def places(file: Path) -> list[tuple[int, int, int, str, str]]:
    return [(e.start, e.size, e.step, e.id, e.task) for e in index(file)]


@pytest.fixture
def kept(file: Path, episodes: list[Episode]) -> Path:
    """Five records in three steps, some with letters of several bytes."""
    odd = replace(episodes[0], final_state="✓ é\u2028 𝄞")
    write(file, [odd, episodes[1]], 1)
    write(file, [], 2)
    write(file, [episodes[0], odd, episodes[1]], 3)
    return file


def test_one_episode_is_read_without_the_others(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the index alone, which is exact to the byte; the result is the same as when all are read."""
    whole = list(read(kept))
    entries = index(kept)
    assert [(e.step, e.id, e.task) for e in entries] == [(r.step, r.episode.id, r.episode.task.id) for r in whole]
    assert [read_one(kept, e) for e in entries] == whole
    assert sum(e.size for e in entries) == kept.stat().st_size
    monkeypatch.setattr(
        records.json, "loads", lambda text, honest=json.loads: honest(text) if len(text) < 200 else 1 / 0
    )
    assert index(kept) == entries, "no record was read"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: None,
        lambda text: "",
        lambda text: text[:-5],
        lambda text: text[: text.index("\n") + 3],
        lambda text: text.splitlines(keepends=True)[0],
        lambda text: "".join(text.splitlines(keepends=True)[1:]),
        lambda text: text.replace("[", "{", 1),
        lambda text: "7\n" + text,
        lambda text: "[0, 1]\n",
    ],
    ids=["missing", "empty", "torn", "torn second", "short", "without its first", "no JSON", "a number", "no entry"],
)
def test_what_the_index_does_not_hold_is_looked_up(kept: Path, damage: Any) -> None:
    """If the index is lost, cut off by a kill or overwritten, the positions are still found."""
    before, listed = places(kept), kept.with_name("episodes.index")
    text = damage(listed.read_text())
    if text is None:
        listed.unlink()
    else:
        listed.write_text(text)
    assert places(kept) == before


def test_a_record_that_was_cut_off_has_no_place(kept: Path) -> None:
    """With an index that is ahead of the records, as long as the records, or missing."""
    before = places(kept)
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1])
    assert places(kept) == before[:-1]
    kept.with_name("episodes.index").unlink()
    assert places(kept) == before[:-1]
    assert len(list(map(read_one, [kept] * 4, index(kept)))) == 4


def test_a_damaged_record_without_an_index_is_named(kept: Path) -> None:
    kept.with_name("episodes.index").unlink()
    lines = kept.read_bytes().splitlines(keepends=True)
    kept.write_bytes(lines[0] + b'{"schema": 1}\n' + lines[1])
    with pytest.raises(InterplayError, match=rf"episodes\.jsonl at byte {len(lines[0])} is not an episode record"):
        index(kept)


# -- logs -------------------------------------------------------------------------------------------------------------


def logged(folder: Path, name: str) -> str:
    (file,) = folder.glob(name)
    return file.read_text(encoding="utf-8")


def test_the_logs_say_what_was_played_and_how_it_ended(tmp_path: Path, table: Any) -> None:
    """A line per game, every prompt and reply in full with timing, and the totals."""
    moves = {0: "1", 1: "4", 2: "2", 3: "5", 4: "3"}
    (won,) = table(lambda c: moves[c.decision]).play()
    (lost,) = table(lambda c: "9" if c.decision < 2 else "1", seats={"O": "rival"}).play()
    lost.seconds = 1.5
    logs = GameLogs(tmp_path, "tiny+org/model name")
    logs.write(7, [won, lost])
    logs.close()

    results = logged(tmp_path, "game_results_*.log").splitlines()
    assert len(results) == 2
    assert results[0].startswith(f"step 7 {won.id} seats X=player O=player | X:'1' O:'4' X:'2' O:'5' X:'3' | rewards")
    assert "win[X]=+1 win[O]=-1" in results[0]
    assert "O=rival" in results[1] and "illegal[O]=-1" in results[1] and results[1].endswith("| 1.50s")

    talk = logged(tmp_path, "llm_conversation_*.log")
    for turn in [*won.line(), *lost.line()]:
        assert all(m.content in talk for m in turn.observation.messages)
        assert f"{len(turn.last.prompt)}+{len(turn.last.action)} tokens" in talk
    assert talk.count(">>> ") == 7 and ">>> 4" in talk and "illegal" in talk
    assert "X won" in talk and "[user] " in talk

    summary = logged(tmp_path, "game_summary_tiny+org_model_name.txt")
    assert "Model: tiny+org/model name" in summary
    for line in ("episodes: 2", "failed: 0", "turns: 7", "turns illegal: 1", "win (X) > 0: 2", "win (O) < 0: 2"):
        assert line in summary.splitlines()
    assert "  illegal (O): -0.500" in summary.splitlines()


def test_the_logs_tell_of_failures(tmp_path: Path, table: Any) -> None:
    """A failed episode is in all three files, with its error."""
    from interplay.errors import EngineError

    (failed,) = table(lambda c: EngineError("the server is gone.") if c.decision else "1").play()
    logs = GameLogs(tmp_path, "tiny")
    logs.write(1, [failed])
    assert "ERROR EngineError: the server is gone." in logged(tmp_path, "game_results_*.log")
    assert "ERROR: EngineError: the server is gone." in logged(tmp_path, "llm_conversation_*.log")
    assert "failed: 1" in logged(tmp_path, "game_summary_tiny.txt")
    logs.close()


def test_the_logs_are_readable_while_the_run_goes_on(tmp_path: Path, table: Any) -> None:
    """Every step is flushed, and only what was really played is written."""
    (episode,) = table(lambda c: c.choose(c.free), plan=Tree(3, "playout"), record_playouts=True).play()
    logs = GameLogs(tmp_path, "tiny")
    logs.write(1, [episode])
    assert logged(tmp_path, "llm_conversation_*.log").count(">>> ") == len(episode.line()) < len(episode.turns)
    logs.write(2, [episode])
    assert len(logged(tmp_path, "game_results_*.log").splitlines()) == 2
    assert "episodes: 2" in logged(tmp_path, "game_summary_tiny.txt")
    logs.close()
