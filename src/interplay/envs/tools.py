"""Tools that environments give to their roles: a calculator, SQL on a database, search, Python in the sandbox.

Each function makes a `Tool`, which an environment puts into `Observation.tools`. All of them explain a caller's mistake
in words, limit their own work, and always give the same answer (a search service only within one run).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from interplay.execution import database
from interplay.rewards.calculator import CalculatorError, calculate, shown
from interplay.types import Parameter, Tool


def calculator() -> Tool:
    def run(expression: str) -> str:
        try:
            return shown(calculate(expression))
        except CalculatorError as error:
            return f"error: {error}"

    what = Parameter("expression", "numbers, + - * / // % ** and brackets")
    return Tool("calculator", "Computes an expression such as (12 + 7) * 3 exactly.", (what,), run)


def sql(data: bytes, rows: int = 10) -> Tool:
    """Queries on one database. The first `rows` rows of a result are shown."""

    def run(query: str) -> str:
        return database.text(database.run(data, query), rows)

    description = f"Runs one SELECT on the database ({database.dialect(data)}) and shows the first {rows} rows."
    return Tool("sql", description, (Parameter("query", "one SELECT statement"),), run)


def search(find: Callable[[str], Sequence[tuple[str, str]]], characters: int = 600) -> Tool:
    """The passages, with title and text, that `find` returns for a query."""

    def run(query: str) -> str:
        found = find(query.strip())
        return "\n".join(f"[{n}] {title}: {text[:characters]}" for n, (title, text) in enumerate(found, 1)) or "nothing"

    return Tool("search", "Finds passages.", (Parameter("query", "a few words"),), run)


def python(seconds: float = 5.0, characters: int = 4000) -> Tool:
    """Programs in the shared sandbox, with the strongest isolation that the machine offers."""
    from interplay.execution.sandbox import Job, Limits, shared

    limits = Limits(seconds=2 * seconds, cpu_seconds=seconds, processes=1)

    def run(code: str) -> str:
        result = shared().run(Job(source=code, limits=limits))
        said = result.stdout[:characters]
        if result.ok:
            return said or "(it printed nothing)"
        last = result.stderr.strip().splitlines()[-1:] or [result.status]
        return f"{said}\nerror: {last[0] if result.status == 'error' else result.status}".strip()

    description = "Runs a Python program (standard library only) and shows what it prints."
    return Tool("python", description, (Parameter("code", "the program"),), run, seconds=10 * seconds + 60)


def named(names: Sequence[str]) -> tuple[Tool, ...]:
    """Tools by name, for those that need nothing from the environment."""
    return tuple({"calculator": calculator, "python": python}[name]() for name in names)
