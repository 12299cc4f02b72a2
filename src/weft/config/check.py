"""Check configuration against the schema: keep what fits, drop and name what does not."""

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from re import search
from typing import Any

from msgspec import inspect

from weft.config.jsonc import Finding, KeyPath
from weft.config.schema import Config, default_keybinds

LARGEST = 2**53 - 1


def is_of_kind(value: Any, kind: inspect.Type) -> bool:
    """Whether a value is of the right sort, never mind what is in it."""
    match kind:
        case inspect.Metadata():
            return is_of_kind(value, kind.type)
        case inspect.UnionType():
            return any(is_of_kind(value, member) for member in kind.types)
        case inspect.StructType() | inspect.DictType():
            return isinstance(value, dict)
        case inspect.VarTupleType():
            return isinstance(value, list)
        case inspect.LiteralType() | inspect.StrType():
            return isinstance(value, str)
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType() | inspect.FloatType() | inspect.DecimalType():
            # Beyond this a number is not the one that was written; 1e999 is not one at all.
            return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
        case _:
            return True


def fits(value: Any, kind: inspect.Type) -> bool:
    if not is_of_kind(value, kind):
        return False
    match kind:
        case inspect.Metadata():
            return fits(value, kind.type)
        case inspect.LiteralType():
            return value in kind.values
        case inspect.StrType():
            return kind.pattern is None or search(kind.pattern, value) is not None
        case inspect.IntType():
            return value == int(value) and (kind.gt is None or value > kind.gt)
        case inspect.FloatType():
            return kind.ge is None or value >= kind.ge
        case _:
            return True


def words(kind: inspect.Type) -> Iterable[str]:
    match kind:
        case inspect.LiteralType():
            yield from (str(value) for value in kind.values)
        case inspect.UnionType():
            for member in kind.types:
                yield from words(member)
        case _:
            return


def describe(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            return str((kind.extra or {}).get("expected") or describe(kind.type))
        case inspect.UnionType():
            return either(describe(member) for member in kind.types)
        case inspect.LiteralType():
            return either(map(quote, kind.values))
        case inspect.IntType():
            return "a whole number" if kind.gt is None else f"a whole number above {kind.gt}"
        case inspect.FloatType():
            return "a number" if kind.ge is None else f"a number of at least {kind.ge}"
        case inspect.DecimalType():
            return "a number"
        case inspect.BoolType():
            return "true or false"
        case inspect.VarTupleType():
            return "a list"
        case inspect.StrType():
            return "a string"
        case _:
            return "an object"


def either(words: Iterable[str], joint: str = "or") -> str:
    *most, last = words
    return f"{', '.join(most)} {joint} {last}" if most else last


def quote(word: object) -> str:
    return f'"{word}"'


def name_kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "something else"


ACTIONS = ("ask", "allow", "deny")


class _Lost:
    """What is left of a value that does not fit."""


_LOST = _Lost()


def check(value: dict[str, Any], *, whole: bool = False) -> tuple[dict[str, Any], list[Finding]]:
    """What fits of a configuration, and what does not.

    One layer may hold part of a thing (a server's timeout) whose rest is in another; only a `whole` configuration is
    asked for what must be there.
    """
    checker = _Checker(whole=whole)
    kept = checker.visit(value, _schema(), ())
    return (kept if isinstance(kept, dict) else {}), checker.findings


@cache
def _schema() -> inspect.Type:
    return inspect.type_info(Config)


@cache
def _type_of(struct: type) -> inspect.Type:
    return inspect.type_info(struct)


def nearest(key: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The known word most like `key`, or nothing."""
    names = {name.lower(): name for name in known}
    wanted = key.lower()
    # Two letters swapped is the commonest slip, and a shorter word may look nearer than the one that was meant.
    swapped = [name for name in names if sorted(name) == sorted(wanted)]
    found = swapped or get_close_matches(wanted, names, n=1, cutoff=cutoff)
    return names[found[0]] if found else ""


class _Checker:
    def __init__(self, *, whole: bool) -> None:
        self.whole = whole
        self.findings: list[Finding] = []

    def visit(self, value: Any, kind: inspect.Type, path: KeyPath) -> Any:
        """`value` without what does not fit `kind`, or `_LOST`."""
        match kind:
            case inspect.Metadata():
                return self._visit_marked(value, kind, path)
            case inspect.UnionType():
                return self._visit_union(value, kind, path)
            case inspect.StructType() if isinstance(value, dict):
                return self._visit_struct(value, kind, path)
            case inspect.DictType() if isinstance(value, dict):
                return self._visit_dict(value, kind, path)
            case inspect.VarTupleType() if isinstance(value, list):
                return self._visit_list(value, kind, path)
            case inspect.IntType() if fits(value, kind):
                return int(value)  # whoever writes 3.0 means 3
            case _:
                return value if fits(value, kind) else self._lose(value, kind, path)

    def _lose(self, value: Any, kind: inspect.Type, path: KeyPath) -> _Lost:
        choices = list(words(kind))
        near = nearest(value, choices) if isinstance(value, str) else ""
        got = "" if is_of_kind(value, kind) else f", found {name_kind(value)}"
        self.findings.append(Finding(path=path, reason=f"expected {describe(kind)}{got}", near=near))
        return _LOST

    def _visit_marked(self, value: Any, kind: inspect.Metadata, path: KeyPath) -> Any:
        marks = kind.extra or {}
        if marks.get("check") == "permission":
            return self._visit_permission(value, path)
        if marks.get("check") == "keybinds" and isinstance(value, dict):
            value = self._known_keybinds(value, path)
        if "like" in marks and isinstance(value, dict):
            return self._visit_struct(value, _type_of(marks["like"]), path, open_to_more=True)
        if "expected" in marks:
            return value if fits(value, kind.type) else self._lose(value, kind, path)
        return self.visit(value, kind.type, path)

    def _visit_union(self, value: Any, kind: inspect.UnionType, path: KeyPath) -> Any:
        members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
        if len(members) == 1:
            return self.visit(value, members[0], path)
        likely = [member for member in members if is_of_kind(value, member)]
        tagged = [member for member in likely if isinstance(member, inspect.StructType) and member.tag]
        if tagged and isinstance(value, dict):
            return self._visit_tagged(value, tagged, path)
        if not likely:
            return self._lose(value, inspect.UnionType(tuple(members)), path)
        if isinstance(value, dict | list):
            return self.visit(value, likely[0], path)
        fitting = next((member for member in likely if fits(value, member)), None)
        if fitting is None:
            return self._lose(value, inspect.UnionType(tuple(members)), path)
        return self.visit(value, fitting, path)

    def _visit_tagged(self, value: dict[str, Any], members: list[inspect.StructType], path: KeyPath) -> Any:
        tag_field = members[0].tag_field or ""
        if tag_field not in value and not self.whole:
            # Part of a thing: hold it against whichever it fits best. A later layer's tag decides.
            return self._visit_best(value, members, path)
        for member in members:
            if value.get(tag_field) == member.tag:
                return self._visit_struct(value, member, path)
        if tag_field not in value:
            # A switch for a server that no layer describes.
            mild = set(value) <= {"enabled"}
            self.findings.append(Finding(path=path, reason=f'needs "{tag_field}"', mild=mild))
            return _LOST
        tags = [str(member.tag) for member in members]
        given = value[tag_field]
        near = nearest(given, tags) if isinstance(given, str) else ""
        reason = f"expected {either(map(quote, tags))}"
        self.findings.append(Finding(path=(*path, tag_field), reason=reason, near=near))
        return _LOST

    def _visit_best(self, value: dict[str, Any], members: list[inspect.StructType], path: KeyPath) -> Any:
        trials = []
        for member in members:
            trial = _Checker(whole=False)
            trials.append((trial.visit(value, member, path), trial.findings))
        kept, findings = min(trials, key=lambda trial: len(trial[1]))
        self.findings.extend(findings)
        return kept

    def _visit_struct(
        self, value: dict[str, Any], kind: inspect.Type, path: KeyPath, *, open_to_more: bool = False
    ) -> Any:
        assert isinstance(kind, inspect.StructType)
        fields = {field.encode_name: field for field in kind.fields}
        open_to_more = open_to_more or getattr(kind.cls, "open_to_more", False)
        kept: dict[str, Any] = {}
        for key, item in value.items():
            here = (*path, key)
            if key in fields:
                found = self.visit(item, fields[key].type, here)
                if found is not _LOST:
                    kept[key] = found
            elif key == kind.tag_field or self._admit_unknown(here, fields, open_to_more=open_to_more):
                kept[key] = item
        missing = [name for name, field in fields.items() if field.required and name not in kept]
        if self.whole and missing:
            self.findings.append(Finding(path=path, reason=f"needs {either(map(quote, missing), 'and')}"))
            return _LOST
        return kept

    def _admit_unknown(self, path: KeyPath, known: Iterable[str], *, open_to_more: bool) -> bool:
        # Where any key is welcome, only one that is a known key but for a slip of the finger is worth a word.
        near = nearest(path[-1], known, cutoff=0.8 if open_to_more else 0.6)
        if near or not open_to_more:
            reason = "unknown key, passed on as an option" if open_to_more else "unknown key, ignored"
            self.findings.append(Finding(path=path, reason=reason, near=near, mild=True))
        return open_to_more

    def _visit_dict(self, value: dict[str, Any], kind: inspect.DictType, path: KeyPath) -> dict[str, Any]:
        found = {key: self.visit(item, kind.value_type, (*path, key)) for key, item in value.items()}
        return {key: item for key, item in found.items() if item is not _LOST}

    def _visit_list(self, value: list[Any], kind: inspect.VarTupleType, path: KeyPath) -> Any:
        found = [self.visit(item, kind.item_type, (*path, str(at))) for at, item in enumerate(value)]
        # All or nothing: a command line with one word missing is another command.
        return _LOST if any(item is _LOST for item in found) else found

    def _known_keybinds(self, value: dict[str, Any], path: KeyPath) -> dict[str, Any]:
        known = default_keybinds()
        return {
            key: item
            for key, item in value.items()
            if key in known or self._admit_unknown((*path, key), known, open_to_more=False)
        }

    def _visit_permission(self, value: Any, path: KeyPath) -> dict[str, Any]:
        if not isinstance(value, dict):
            return {"*": self._action(value, path)}
        return {
            key: {pattern: self._action(each, (*path, key, pattern)) for pattern, each in item.items()}
            if isinstance(item, dict)
            else self._action(item, (*path, key))
            for key, item in value.items()
            if key != "__originalKeys"
        }

    def _action(self, value: Any, path: KeyPath) -> str:
        if value in ACTIONS:
            return str(value)
        # A rule that cannot be read must not open what it may have been meant to close.
        near = nearest(value, ACTIONS) if isinstance(value, str) else ""
        reason = 'expected "ask", "allow" or "deny"; taken as "ask"'
        self.findings.append(Finding(path=path, reason=reason, near=near))
        return "ask"
