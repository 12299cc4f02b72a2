"""Plant one of the mistakes of `tests/mutations/engine.toml` into the code of this process, and take it out again."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

from given.simulated_world import World
from mutate import Mutation, list_mutations


def list_planted() -> list[Mutation]:
    return [mutation for mutation in list_mutations() if mutation.package == "engine"]


@contextmanager
def plant(mutation: Mutation) -> Iterator[None]:
    """Replace the code of the functions of a module by that of a changed source, also for those who already hold a function."""
    name = f"weft.{mutation.file.removesuffix('.py').replace('/', '.')}"
    module = import_module(name)
    changed = ModuleType(name)
    source = mutation.source.read_text()
    assert source.count(mutation.old) == 1
    exec(compile(source.replace(mutation.old, mutation.new), str(mutation.source), "exec"), changed.__dict__)
    functions, others = dict(list_functions(module)), dict(list_functions(changed))
    before = {name: function.__code__ for name, function in functions.items()}
    try:
        for name, function in functions.items():
            function.__code__ = others[name].__code__
        yield
    finally:
        for name, code in before.items():
            functions[name].__code__ = code


def find_bug(name: str, most: int) -> tuple[int, str] | None:
    """Plant a mistake. Return the first of at most `most` seeds that finds it, and what it found; None if none does."""
    [bug] = [each for each in list_planted() if each.name == name]
    with plant(bug):
        for seed in range(most):
            if wrong := World(seed).run():
                return seed, wrong[0]
    return None


def list_functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """Yield the functions and methods that a module defines, by their qualified names."""
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members = vars(value).values() if isinstance(value, type) else [value]
        for member in members:
            function = unwrap(member)
            if isinstance(function, FunctionType) and function.__code__.co_filename == module_file(
                module, function
            ):
                yield function.__qualname__, function


def module_file(module: ModuleType, function: FunctionType) -> str:
    return getattr(module, "__file__", None) or function.__code__.co_filename


def unwrap(member: Any) -> Any:
    match member:
        case property():
            member = member.fget
        case cached_property():
            member = member.func
        case staticmethod() | classmethod():
            member = member.__func__
    return inspect.unwrap(member) if callable(member) else member
