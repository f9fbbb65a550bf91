"""Ask a reward server to score many replies, and print the seconds until the last score has arrived.

    interplay judge serve FOLDER --port 8900
    python benchmarks/reward_client.py --port 8900 --replies 8192 --words 248

A client is a program of its own, so that it does not take time from the server's process.
`benchmarks/judges.py server` starts it for its server.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from interplay.config import JudgeSection
from interplay.rewards.remote import RemoteScorer
from interplay.types import Message


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True, help="port of the server on this machine")
    parser.add_argument("--replies", type=int, default=8192, help="how many replies are scored")
    parser.add_argument("--word", default=" word", help="a reply consists of its number and this word, repeated")
    parser.add_argument("--words", type=int, default=248, help="how often the word is repeated in a reply")
    parser.add_argument("--batch", type=int, default=64, help="replies in one request; all requests are sent at once")
    args = parser.parse_args()
    scorer = RemoteScorer(JudgeSection(kind="reward_model", who=f"http://127.0.0.1:{args.port}"))
    question = (Message("user", "Say it."),)
    rows = [(question, f"{i}{args.word * args.words}") for i in range(args.replies)]

    async def ask() -> None:
        starts = range(0, args.replies, args.batch)
        await asyncio.gather(*(scorer.scores(rows[i : i + args.batch]) for i in starts))

    began = time.monotonic()
    asyncio.run(ask())
    print(time.monotonic() - began)


if __name__ == "__main__":
    main()
