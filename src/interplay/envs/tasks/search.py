"""Search and synthesis: a searcher finds passages, and a reader answers from these passages only.

Roles         searcher, then reader; `team = "single"`: the reader does both.
Turns         up to `searches` times the searcher writes a query and gets the best `results` passages; "done" ends its
              search early. Then the reader answers.
Observation   searcher: the question, its queries and what they found. Reader: the question and the first 600 characters
              of each passage that was found. The whole prompt each time.
Actions       searcher: a query, or "done". An empty query, or one with more than 150 characters, finds nothing. Reader:
              free text that ends with "Answer: " and the answer, of at most 20 words.
Rewards       searcher: `found` (agent, each search): the share of the passages with the answer that this search found
              for the first time. Passages that the question itself finds when it is used as a query are not counted,
              so copying it earns nothing. Not scored if no passage is left, or if it is not known which passages have
              the answer. Reader: `format` (process) 0.2 for an answer in the form, `match` (agent) 0.8 times its F1.
              `correct` (team, at the end): 1 for an exact match.
Data          prepared rows of kind search (hotpotqa, musique) with their corpus, or generated two-hop questions over
              invented people and towns, with their own passages.
Tool          BM25 over the whole corpus (`pool = "corpus"`) or over the passages that came with the question
              (`pool = "row"`). Passages that fit equally well are returned only if there is room for all of them, so a
              query of common words finds nothing. `web`: a search service over HTTP (see web.py), whose answers may
              change.
Checker       exact match and F1 as in SQuAD and HotpotQA (rewards/short_text.py).
Version       2
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.envs import tools
from interplay.envs.env import register
from interplay.envs.speech import heard
from interplay.envs.splits import TRIES, split_of, split_of_task
from interplay.envs.tasks import web
from interplay.envs.tasks.bm25 import Index
from interplay.envs.tasks.data import DataEnv, DataOptions, DataRow, Prepared
from interplay.envs.tasks.debate import FORMAT, MATCH
from interplay.errors import ConfigError
from interplay.rewards import short_text
from interplay.rewards.reply import stated
from interplay.rewards.verify import unmarked
from interplay.types import Message, Observation, Rewards, Role, Task

LONGEST_QUERY = 150
SHOWN = 600  # characters of a passage that are shown
WORDS = 20  # the largest number of words in an answer
DONE = "done"

_SEARCH = (
    "You search for the passages that answer the question; another model will read them and answer. Reply with one "
    "short search query, or with done if enough was found."
)
_READ = (
    "Answer the question from the passages. End with a line that begins with Answer and a colon, then the answer in as "
    "few words as possible."
)


class Options(DataOptions):
    team: Literal["pair", "single"] = Field("pair", description="searcher and reader, or one agent for both")
    searches: int = Field(2, ge=1, le=10, description="largest number of queries")
    results: int = Field(3, ge=1, le=20, description="number of passages that a query returns")
    pool: Literal["corpus", "row"] = Field("corpus", description="what is searched: everything, or the row's passages")
    tools: bool = Field(False, description="let the reader search too, with the tool search inside its turn")
    web: str = Field("", description="address of a search service to use instead of BM25")
    web_key: str = Field("", description="environment variable that holds the service's key, sent as a bearer token")

    @model_validator(mode="after")
    def _web_is_an_address(self) -> Options:
        if self.web:
            web.checked(self.web, self.web_key)
        return self


@register("search")
class Search(DataEnv):
    Options = Options
    kind: ClassVar[str] = "search"
    success: ClassVar[str] = "correct"
    version = "2"  # version 1 also counted passages that the question itself finds, or a query of common words
    slow: ClassVar[bool] = True  # the corpus may be large, or the search may go over the web
    reward_names: ClassVar[tuple[str, ...]] = ("found", "format", "match", "correct")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.roles = ("reader",) if task.data["team"] == "single" else ("searcher", "reader")
        self.queries: tuple[str, ...] = ()
        self.found: tuple[tuple[str, str], ...] = ()  # passages, in the order in which they were found
        self.searching = True
        self.reply: str | None = None

    # -- the contract ---------------------------------------------------------------------------------------------

    def observe(self) -> dict[Role, Observation]:
        if self.reply is not None:
            return {}
        lines = [f"Question: {self.row['question']}"]
        if self.queries:
            lines.append("Searched for: " + "; ".join(heard(q, LONGEST_QUERY) or "nothing" for q in self.queries))
        for n, (title, text) in enumerate(self.found, 1):
            lines.append(f"[{n}] {heard(unmarked(title))}: {heard(unmarked(text), SHOWN)}")
        if not self.found:
            lines.append("Nothing found yet." if self.searching else "Nothing was found.")
        rule, phase = (_SEARCH, "search") if self.searching else (_READ, "read")
        messages = (Message("system", rule), Message("user", "\n".join(lines)))
        allowed = () if self.searching or not self.task.data["tools"] else (tools.search(self._search),)
        return {self.acting: Observation(messages, True, (), phase, allowed)}

    @property
    def acting(self) -> Role:
        return self.roles[0] if self.searching else "reader"

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        if not self.searching:
            return self._answered(role, text)
        query = text.strip()
        if query.casefold().strip(".!\"'") == DONE:
            self.searching = False
            return Rewards()
        before = self.found
        self.found = tuple(dict.fromkeys((*before, *self._search(query))))
        self.queries += (query[:LONGEST_QUERY],)
        self.searching = len(self.queries) < self.task.data["searches"]
        gold = self._rewarded()
        new = sum(passage in gold for passage in self.found) - sum(passage in gold for passage in before)
        return Rewards.agent("found", {role: new / len(gold) if gold else None})

    def _answered(self, role: Role, text: str) -> Rewards:
        self.reply = text
        answer = self.answer()
        f1 = short_text.f1(answer, self.row["answers"]) if answer else 0.0
        rewards = Rewards.process("format", {role: FORMAT * (answer is not None)})
        return rewards + Rewards.agent("match", {role: MATCH * f1})

    def answer(self) -> str | None:
        """The one answer of the reply, if it is short enough."""
        given = stated(self.reply or "")
        short = len(given) == 1 and 0 < len(given[0].split()) <= WORDS
        return given[0] if short and short_text.normal(given[0]) else None

    def outcome(self) -> Rewards:
        answer = self.answer()
        return Rewards.team(
            "correct", float(answer is not None and short_text.exact_match(answer, self.row["answers"]))
        )

    def state(self) -> str:
        lines = [f"Question: {self.row['question']}", "searched for: " + "; ".join(self.queries)]
        lines.append("found: " + "; ".join(title for title, _ in self.found))
        if self.reply is not None:
            lines += [f"answered: {self.answer()}", f"right: {self.row['answers'][0]}"]
        return "\n".join(lines)

    # -- the tool -------------------------------------------------------------------------------------------------

    def _search(self, query: str) -> list[tuple[str, str]]:
        count: int = self.task.data["results"]
        if not query or len(query) > LONGEST_QUERY:
            return []
        if self.task.data["web"]:
            return list(web.search(self.task.data["web"], query, count, self.task.data["web_key"]))
        passages, index = self._library()
        return [passages[place] for place in index.search(query, count)]

    def _library(self) -> tuple[tuple[tuple[str, str], ...], Index]:
        source = self.source(self.task.data, split_of_task(self.task.seed))
        if source is not None and self.task.data["pool"] == "corpus":
            return _whole(source.folder, source.manifest["tables"]["corpus"]["sha256"])
        return _indexed(tuple(self._passage(p) for p in self.row["passages"]))

    def _passage(self, passage: int | Mapping[str, str]) -> tuple[str, str]:
        """Generated rows contain their passages. Prepared rows have indices into the corpus."""
        if not isinstance(passage, int):
            return passage["title"], passage["text"]
        source = self.source(self.task.data, split_of_task(self.task.seed))
        assert source is not None
        found = source.table("corpus")[passage]
        return found["title"], found["text"]

    def _rewarded(self) -> set[tuple[str, str]]:
        """The passages with the answer that the question itself does not find."""
        if self.task.data["web"]:
            return set()
        passages, index = self._library()
        places = _found_by(index, self.row["question"][:LONGEST_QUERY], self.task.data["results"])
        return {self._passage(p) for p in self.row["gold"]} - {passages[place] for place in places}

    # -- for scripted players, and generated rows -----------------------------------------------------------------

    def script(self, role: Role) -> str:
        """Each search asks for the title of a missing passage or, if that is not enough, for its words."""
        if not self.searching:
            return f"Answer: {self.row['answers'][0]}"
        missing = [self._passage(p) for p in self.row["gold"] if self._passage(p) not in self.found]
        if not missing:
            return DONE
        title, text = missing[0]
        short = title[:LONGEST_QUERY]
        return short if missing[0] in self._search(short) else f"{title} {text}"[:LONGEST_QUERY]

    def script_calls(self, role: Role) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """The reader searches once more for each passage that was not found."""
        if self.searching or not self.task.data["tools"]:
            return ()
        missing = [self._passage(p) for p in self.row["gold"] if self._passage(p) not in self.found]
        return tuple(("search", {"query": title[:LONGEST_QUERY]}) for title, _ in missing)

    @classmethod
    def generate(cls, rng: random.Random, split: str, options: Mapping[str, Any]) -> DataRow:
        for _ in range(TRIES):
            if (row := _drawn(rng, split)) is not None:
                return row
        raise ConfigError("no question was found for this split; expected another seed.")


@lru_cache(maxsize=8)
def _whole(folder: Any, sha256: str) -> tuple[tuple[tuple[str, str], ...], Index]:
    """The index of a prepared corpus, built once for each content."""
    table = Prepared.open(folder).table("corpus")
    return _built(tuple((row["title"], row["text"]) for row in table))


@lru_cache(maxsize=1024)
def _indexed(passages: tuple[tuple[str, str], ...]) -> tuple[tuple[tuple[str, str], ...], Index]:
    return _built(passages)


@lru_cache(maxsize=1024)
def _found_by(index: Index, question: str, count: int) -> tuple[int, ...]:
    """The passages that the question itself finds. Every search of a task needs them, so they are kept."""
    return tuple(index.search(question, count))


def _built(passages: tuple[tuple[str, str], ...]) -> tuple[tuple[tuple[str, str], ...], Index]:
    return passages, Index([f"{title} {text}" for title, text in passages])


# -- generated questions ----------------------------------------------------------------------------------------------

_FIRST = ("Alma", "Bruno", "Celia", "Dario", "Edda", "Falk", "Greta", "Henrik", "Ines", "Jonas", "Karla", "Lars")
_LAST = ("Abel", "Brandt", "Corso", "Dunn", "Engel", "Falk", "Grau", "Holm", "Iver", "Jarl", "Kern", "Lund")
_STEMS = ("Arn", "Bel", "Cor", "Dal", "Elm", "Fen", "Gar", "Hol", "Ist", "Kel", "Lor", "Mar")
_ENDS = ("burg", "dale", "feld", "ford", "ham", "mouth", "stad", "ton")
_PEOPLE = [f"{first} {last}" for first in _FIRST for last in _LAST]
_TOWNS = [stem + end for stem in _STEMS for end in _ENDS]
_TRADES = ("botanist", "composer", "engineer", "painter", "physician", "poet")


def _drawn(rng: random.Random, split: str) -> DataRow | None:
    """Four people and their towns, in eight passages, and a question that needs two of them; None for another split."""
    people = rng.sample(_PEOPLE, 4)
    trade = rng.choice(_TRADES)
    question = f"On which river lies the town where the {trade} {people[0]} was born?"
    if split_of(question) != split:
        return None
    rivers = rng.sample(_STEMS, 4)
    passages = []
    for n, (person, town) in enumerate(zip(people, rng.sample(_TOWNS, 4), strict=True)):
        work, year = rng.choice(_TRADES) if n else trade, rng.randint(1780, 1960)
        passages.append({"title": person, "text": f"{person}, {work}, was born in {town} in the year {year}."})
        passages.append({"title": town, "text": f"{town} is a town on the river {rivers[n]}a, known for its market."})
    return {
        "question": question, "answers": [f"{rivers[0]}a"],
        "passages": rng.sample(passages, len(passages)), "gold": passages[:2],
    }  # fmt: skip
