"""Stand-ins for names that lockstep does not have: a file of tests imports them, and only tests that use them fail."""

from __future__ import annotations

from typing import Any

# Whether a file's own statements run: what they call is put off, so that its other tests count.
loading = {"now": False}


class AbsentError(Exception):
    """Error of a test that uses a name which is not there.

    Attributes:
        kind: "internal" for what TensorFlow keeps to itself, "graph" for graphs and sessions, "missing" for a public
            name that lockstep.compat lacks.
        name: TensorFlow's name.
    """

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{name} ({kind})")
        self.kind, self.name = kind, name


class Absent:
    """Name that is not there; whatever a test does with it raises AbsentError."""

    def __init__(self, kind: str, name: str) -> None:
        self.__dict__.update(kind=kind, absent_name=name)

    def _fail(self) -> AbsentError:
        return AbsentError(self.__dict__["kind"], self.__dict__["absent_name"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if loading["now"]:
            return self
        raise self._fail()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if loading["now"]:
            return Absent(self.__dict__["kind"], f"{self.__dict__['absent_name']}.{name}")
        raise self._fail()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        kind, name = self.__dict__["kind"], self.__dict__["absent_name"]

        class Base:
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                raise AbsentError(kind, name)

            def setUp(self) -> None:
                raise AbsentError(kind, name)

        return (Base,)

    def __hash__(self) -> int:
        if loading["now"]:
            return id(self)
        raise self._fail()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __iter__(self) -> Any:
        if loading["now"]:
            return iter(())
        raise self._fail()

    def __enter__(self) -> Any:
        raise self._fail()

    def __exit__(self, *error: object) -> None:
        """Never comes: entering has failed."""

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __or__(self, other: Any) -> Any:
        return self

    def __add__(self, other: Any) -> Any:
        if loading["now"]:
            return other
        raise self._fail()

    def __radd__(self, other: Any) -> Any:
        return self + other

    def __getitem__(self, key: Any) -> Any:
        return self
