"""Prints the mean of one number per seed and its 95% interval (Student's t), as in the tables of the docs.

python benchmarks/seeds.py 90.4 89.8 92.0
"""

from __future__ import annotations

import argparse

from interplay.evaluation.intervals import mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="+", type=float, help="the result of each seed")
    numbers = parser.parse_args().numbers
    found = mean(numbers)
    several = f" ± {found.high - found.value:.2f}, {len(numbers)} seeds"
    print(f"{found.value:.2f}{several if len(numbers) > 1 else ' (one run)'}")


if __name__ == "__main__":
    main()
