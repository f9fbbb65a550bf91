"""Services: questions to libraries, each answered by its own isolated process."""

from __future__ import annotations

import resource

from interplay.execution import database
from interplay.execution.job import Limits
from interplay.execution.services import LibraryQuestion, LibraryService


def test_the_cpu_time_of_questions_is_counted_when_a_service_has_ended() -> None:
    """Otherwise no benchmark would see their cost."""
    data = database.build("CREATE TABLE t (a INTEGER)", {})

    def used(query: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        service = LibraryService("interplay.execution.sqlite")
        asked = {"file": "d", "query": query, "rows": 1, "steps": database.STEPS}
        service.ask(LibraryQuestion(asked, {"d": data}, Limits(seconds=50, cpu_seconds=2, memory_mb=1024)))
        service.pool.close()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    text = "replace(hex(zeroblob(15000)), '0', '{}')"
    long = f"SELECT length(trim({text.format('a')}, {text.format('b')} || 'a'))"  # half a minute, in one step
    assert used(long) - used("SELECT 1") > 1, "it has used the two seconds that it may"
