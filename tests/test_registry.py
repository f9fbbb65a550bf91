"""One registry for environments, algorithms, bots and data formats: names, lazy modules, errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interplay.algorithms.algorithm import ALGORITHMS
from interplay.envs.env import ENVIRONMENTS, lookup
from interplay.envs.tasks.data import FORMATS
from interplay.errors import ConfigError
from interplay.registry import Registry


class Animal:
    pass


def animals(**more: object) -> Registry[Animal]:
    made: Registry[Animal] = Registry(Animal, "an animal", "zoo.name", **more)  # type: ignore[arg-type]

    @made.register("cat")
    class Cat(Animal):
        pass

    return made


def test_a_class_is_found_by_the_name_it_was_registered_under() -> None:
    assert animals().lookup("cat").__name__ == "Cat"
    assert animals().known() == ["cat"]


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"^zoo.name 'cta' is not an animal; known: cat\. Did you mean 'cat'\?$"):
        animals().lookup("cta")


def test_a_module_is_imported_when_its_name_is_asked_for_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "far_away.py").write_text("class Dog: pass\nclass Stone: pass\n")
    zoo = animals(places={"dog": "far_away:Dog"})
    assert zoo.known() == ["cat", "dog"] and "far_away" not in sys.modules
    assert zoo.lookup("dog").__name__ == "Dog"
    sys.modules.pop("far_away")


def test_a_class_outside_is_named_by_its_module_and_must_be_of_the_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "outside.py").write_text("class Stone: pass\n")
    zoo: Registry[int] = Registry(int, "a number", "n")
    assert zoo.lookup("builtins:bool") is bool
    with pytest.raises(
        ConfigError, match=r"^n 'outside:Stone' is not a number; expected a subclass of builtins.int\.$"
    ):
        zoo.lookup("outside:Stone")
    for name, why in (("nowhere:X", "No module named 'nowhere'"), ("outside:X", "has no attribute 'X'")):
        with pytest.raises(
            ConfigError, match=rf"^n '{name}' cannot be imported: .*{why}.*expected package.module:Class"
        ):
            zoo.lookup(name)
    with pytest.raises(ConfigError, match=r"expected package.module:Class, or else\.$"):
        zoo.lookup("nowhere:X", lambda: ", or else.")


def test_every_module_of_a_package_registers_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "zoo_package").mkdir()
    (tmp_path / "zoo_package" / "__init__.py").write_text(
        "from interplay.registry import Registry\nZ = Registry(object, 'an animal', package='zoo_package')\n"
    )
    (tmp_path / "zoo_package" / "birds.py").write_text(
        "from zoo_package import Z\n@Z.register('owl')\nclass Owl: pass\n"
    )
    from zoo_package import Z  # type: ignore[import-not-found]

    assert Z.known() == ["owl"] and Z.lookup("owl").__name__ == "Owl"
    with pytest.raises(ConfigError, match=r"^'owk' is not an animal; known: owl\."):
        Z.lookup("owk")


def test_listing_names_imports_no_environment_no_algorithm_and_no_bot() -> None:
    source = (
        "import sys; from interplay import envs, algorithms; from interplay.agents.bots.bot import BOTS\n"
        "envs.known(), algorithms.known(), BOTS.known()\n"
        "print(sorted(m for m in sys.modules if m.startswith(('interplay.envs.games.', 'interplay.envs.tasks.',"
        " 'interplay.algorithms.grpo', 'interplay.agents.bots.minimax'))))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_installed_package_adds_names_by_its_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `pip install` installs it: a module, and a folder of metadata beside it."""
    (tmp_path / "farm_animals.py").write_text(
        "from interplay.envs import Env\nclass Cow(Env):\n    pass\nclass Stone:\n    pass\n"
    )
    about = tmp_path / "farm-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: farm\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[interplay.environments]\ncow = farm_animals:Cow\nstone = farm_animals:Stone\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from interplay.envs import Env

    made: Registry[Env] = Registry(Env, "an environment", "env.name", group="interplay.environments")
    assert made.known() == ["cow", "stone"]
    assert made.lookup("cow").__name__ == "Cow"
    with pytest.raises(ConfigError, match=r"env.name 'stone' is not an environment; expected a subclass"):
        made.lookup("stone")


@pytest.mark.parametrize(
    ("known", "group", "base"),
    [
        (ENVIRONMENTS, "interplay.environments", "interplay.envs:Env"),
        (ALGORITHMS, "interplay.algorithms", "interplay.algorithms:Algorithm"),
        (FORMATS, "interplay.formats", "interplay.envs.tasks.data:Public"),
    ],
)
def test_environments_algorithms_and_formats_of_an_installed_package_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: Registry[Any], group: str, base: str
) -> None:
    module, _, name = base.partition(":")
    place = f"shelf_{name.lower()}"
    (tmp_path / f"{place}.py").write_text(f"from {module} import {name}\nclass Own({name}):\n    pass\n")
    about = tmp_path / "shelf-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\nown = {place}:Own\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(known, "_points", None)  # as in a new process
    assert "own" in known.known() and known.lookup("own").__name__ == "Own"


@pytest.mark.parametrize("name", ["interplay.evaluation.games:TwoKeys", "tictactoe"])
def test_no_nearest_name_is_searched_for_an_environment_that_exists(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every episode looks up its environment, and the search took a twentieth of the time of a small game."""

    def searched(*_: object) -> str:
        raise AssertionError("it was searched")

    monkeypatch.setattr("interplay.envs.env.did_you_mean", searched)
    assert lookup(name).__name__ in ("TwoKeys", "TicTacToe")
