"""Classes of one kind, found by name: environments, algorithms, bots and data formats are each a `Registry`.

A name is known because a class was registered under it, or because a module is listed that registers it when it is
imported. Such a module is imported when its name is first asked for, so that listing names costs nothing. A name of the
form `package.module:Class` is imported directly, for classes outside Interplay.

`places` maps a name to the module that registers it, or to `module:Class`. An installed package can add names of the
second form with entry points of the registry's group, such as `interplay.environments`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, Generic, TypeVar

from interplay.errors import ConfigError, did_you_mean

T = TypeVar("T")
C = TypeVar("C", bound=type[Any])


class Registry(Generic[T]):
    """The subclasses of `base` by name. `what` ("an environment") and `key` ("env.name") are for error sentences.

    `places` are modules by name; `package` is a package of which every module registers something; `group` is the name
    of the entry points with which installed packages add to it.

    >>> animals: Registry[object] = Registry(object, "an animal")
    >>> @animals.register("cat")
    ... class Cat: ...
    >>> animals.lookup("cat").__name__, animals.known()
    ('Cat', ['cat'])
    """

    def __init__(
        self,
        base: type[Any],
        what: str,
        key: str = "",
        places: Mapping[str, str] | None = None,
        package: str = "",
        group: str = "",
    ) -> None:
        self.base, self.what, self.key = base, what, key
        self.places = dict(places or {})
        self.package, self.group = package, group
        self.classes: dict[str, type[T]] = {}
        self._points: dict[str, str] | None = None

    def register(self, name: str) -> Callable[[C], C]:
        """Class decorator: makes the class known by `name`."""

        def add(cls: C) -> C:
            self.classes[name] = cls
            return cls

        return add

    def known(self) -> list[str]:
        """Every name, in alphabetical order."""
        self._import_package()
        return sorted({*self.places, *self.classes, *self._installed()})

    def lookup(self, name: str, hint: Callable[[], str] = lambda: ".") -> type[T]:
        """The class behind a name. An error for a class that cannot be imported ends with what `hint` returns."""
        module, colon, attribute = name.partition(":")
        if name not in self.classes and name in self.places:
            self._import(name, self.places[name])
        if name not in self.classes:
            self._import_package()
        if name not in self.classes and name in self._installed():
            module, _, attribute = self._installed()[name].partition(":")
            return self._outside(name, module, attribute, hint)
        if name not in self.classes and colon and attribute:
            return self._outside(name, module, attribute, hint)
        if name not in self.classes:
            raise ConfigError(f"{self._quoted(name)} is not {self.what}; {did_you_mean(name, self.known())}")
        return self.classes[name]

    def _import(self, name: str, place: str) -> None:
        module, _, attribute = place.partition(":")
        found = importlib.import_module(module)
        if attribute:
            self.classes[name] = getattr(found, attribute)

    def _installed(self) -> dict[str, str]:
        """The names that installed packages add, with the `module:Class` of each. Looked up once."""
        if self._points is None:
            found = metadata.entry_points(group=self.group) if self.group else ()
            self._points = {point.name: point.value for point in found}
        return self._points

    def _import_package(self) -> None:
        if self.package:
            path = importlib.import_module(self.package).__path__
            for info in pkgutil.iter_modules(path):
                importlib.import_module(f"{self.package}.{info.name}")

    def _outside(self, name: str, module: str, attribute: str, hint: Callable[[], str]) -> type[T]:
        try:
            cls = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"{self._quoted(name)} cannot be imported: {error}; expected package.module:Class{hint()}"
            ) from None
        if not (isinstance(cls, type) and issubclass(cls, self.base)):
            raise ConfigError(
                f"{self._quoted(name)} is not {self.what}; expected a subclass of "
                f"{self.base.__module__}.{self.base.__qualname__}."
            )
        return cls

    def _quoted(self, name: str) -> str:
        return f"{self.key} '{name}'".lstrip()


def imported(key: str, name: str) -> Callable[..., Any]:
    """Import the function that `module:function` names."""
    module, colon, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute) if colon else None
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key} is '{name}', which cannot be imported: {error}; expected module:function.") from None
    if not callable(found):
        raise ConfigError(f"{key} is '{name}', which is no function; expected module:function.")
    return found
