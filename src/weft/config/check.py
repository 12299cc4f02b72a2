"""Check configuration against the schema: keep what fits, and report what does not."""

from collections.abc import Iterable
from functools import cache
from re import search
from typing import Any

from msgspec import inspect

from weft.config.jsonc import ConfigFinding, KeyPath
from weft.config.schema import Config, get_default_keybinds
from weft.errors import find_similar

MAX_SAFE_INTEGER = 2**53 - 1
# Comparing an unknown word with all known ones takes time. Nobody corrects more words than these one by one.
MAX_SEARCHES = 1000


def has_json_type(value: Any, kind: inspect.Type) -> bool:
    """Return True if a value has the JSON type of the schema. Its content is not checked."""
    match kind:
        case inspect.Metadata():
            return has_json_type(value, kind.type)
        case inspect.UnionType():
            return any(has_json_type(value, member) for member in kind.types)
        case inspect.StructType() | inspect.DictType():
            return isinstance(value, dict)
        case inspect.VarTupleType():
            return isinstance(value, list)
        case inspect.LiteralType() | inspect.StrType():
            return isinstance(value, str)
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType() | inspect.FloatType() | inspect.DecimalType():
            # JSON numbers above this lose precision, and 1e999 becomes infinite.
            return (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and abs(value) <= MAX_SAFE_INTEGER
            )
        case _:
            return True


def fits_type(value: Any, kind: inspect.Type) -> bool:
    """Return True if a value fits the schema. Of objects, lists and unions only the JSON type is checked."""
    if not has_json_type(value, kind):
        return False
    match kind:
        case inspect.Metadata():
            return fits_type(value, kind.type)
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


def list_choices(kind: inspect.Type) -> Iterable[str]:
    """Yield the literal values that a schema allows."""
    match kind:
        case inspect.LiteralType():
            yield from (str(value) for value in kind.values)
        case inspect.UnionType():
            for member in kind.types:
                yield from list_choices(member)
        case _:
            return


def describe_type(kind: inspect.Type) -> str:
    """Describe a schema in words, for an error message."""
    match kind:
        case inspect.Metadata():
            return str((kind.extra or {}).get("expected") or describe_type(kind.type))
        case inspect.UnionType():
            return join_choices(describe_type(member) for member in kind.types)
        case inspect.LiteralType():
            return join_choices(map(quote_word, kind.values))
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


def join_choices(words: Iterable[str], conjunction: str = "or") -> str:
    """Join words as "a, b or c"."""
    *others, last = words
    return f"{', '.join(others)} {conjunction} {last}" if others else last


def quote_word(word: object) -> str:
    return f'"{word}"'


def describe_value(value: Any) -> str:
    """Describe the JSON type of a value in words."""
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


class _Rejected:
    """Marks a value that does not fit."""


_REJECTED = _Rejected()


def check_config(
    value: dict[str, Any], *, is_complete: bool = False
) -> tuple[dict[str, Any], list[ConfigFinding]]:
    """Return the part of a configuration that fits the schema, and the findings about the rest.

    A single layer may hold part of an object whose rest is in another layer, so missing keys are reported only if the
    configuration `is_complete`.
    """
    checker = _Checker(is_complete=is_complete)
    kept = checker.visit(value, _get_schema(), ())
    return (kept if isinstance(kept, dict) else {}), checker.findings


@cache
def _get_schema() -> inspect.Type:
    return inspect.type_info(Config)


@cache
def _get_type(struct: type) -> inspect.Type:
    return inspect.type_info(struct)


def find_nearest(key: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return the known word most similar to `key`, or ""."""
    names = {name.lower(): name for name in known}
    word = key.lower()
    # Swapped letters are the most common typo, and a shorter word may look more similar than the intended one.
    swapped = [name for name in names if sorted(name) == sorted(word)]
    matches = swapped or find_similar(word, names, n=1, cutoff=cutoff)
    return names[matches[0]] if matches else ""


class _Checker:
    def __init__(self, *, is_complete: bool) -> None:
        self.is_complete = is_complete
        self.findings: list[ConfigFinding] = []
        self._searches = 0

    def visit(self, value: Any, kind: inspect.Type, path: KeyPath) -> Any:
        """Return `value` without what does not fit `kind`, or `_REJECTED`."""
        match kind:
            case inspect.Metadata():
                return self._visit_annotated(value, kind, path)
            case inspect.UnionType():
                return self._visit_union(value, kind, path)
            case inspect.StructType() if isinstance(value, dict):
                return self._visit_struct(value, kind, path)
            case inspect.DictType() if isinstance(value, dict):
                return self._visit_dict(value, kind, path)
            case inspect.VarTupleType() if isinstance(value, list):
                return self._visit_list(value, kind, path)
            case inspect.IntType() if fits_type(value, kind):
                return int(value)  # 3.0 means 3
            case _:
                return value if fits_type(value, kind) else self._reject(value, kind, path)

    def _find_nearest(self, key: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
        self._searches += 1
        return find_nearest(key, known, cutoff=cutoff) if self._searches <= MAX_SEARCHES else ""

    def _reject(self, value: Any, kind: inspect.Type, path: KeyPath) -> _Rejected:
        choices = list(list_choices(kind))
        near = self._find_nearest(value, choices) if isinstance(value, str) else ""
        actual = "" if has_json_type(value, kind) else f", found {describe_value(value)}"
        self.findings.append(
            ConfigFinding(path=path, reason=f"expected {describe_type(kind)}{actual}", near=near)
        )
        return _REJECTED

    def _visit_annotated(self, value: Any, kind: inspect.Metadata, path: KeyPath) -> Any:
        extra = kind.extra or {}
        if extra.get("check") == "permission":
            return self._visit_permission(value, path)
        if extra.get("check") == "keybinds" and isinstance(value, dict):
            value = self._drop_unknown_keybinds(value, path)
        if "like" in extra and isinstance(value, dict):
            return self._visit_struct(value, _get_type(extra["like"]), path, accepts_unknown=True)
        if "expected" in extra:
            return value if fits_type(value, kind.type) else self._reject(value, kind, path)
        return self.visit(value, kind.type, path)

    def _visit_union(self, value: Any, kind: inspect.UnionType, path: KeyPath) -> Any:
        members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
        if len(members) == 1:
            return self.visit(value, members[0], path)
        candidates = [member for member in members if has_json_type(value, member)]
        tagged = [member for member in candidates if isinstance(member, inspect.StructType) and member.tag]
        if tagged and isinstance(value, dict):
            return self._visit_tagged(value, tagged, path)
        if not candidates:
            return self._reject(value, inspect.UnionType(tuple(members)), path)
        if isinstance(value, dict | list):
            return self.visit(value, candidates[0], path)
        fitting = next((member for member in candidates if fits_type(value, member)), None)
        if fitting is None:
            return self._reject(value, inspect.UnionType(tuple(members)), path)
        return self.visit(value, fitting, path)

    def _visit_tagged(self, value: dict[str, Any], members: list[inspect.StructType], path: KeyPath) -> Any:
        tag_field = members[0].tag_field or ""
        if tag_field not in value and not self.is_complete:
            # Part of an object: use the member that it fits best. The tag in a later layer decides.
            return self._visit_best(value, members, path)
        for member in members:
            if value.get(tag_field) == member.tag:
                return self._visit_struct(value, member, path)
        if tag_field not in value:
            # With `enabled` alone, it only switches a server that no layer describes.
            is_warning = set(value) <= {"enabled"}
            self.findings.append(
                ConfigFinding(path=path, reason=f'"{tag_field}" is missing', is_warning=is_warning)
            )
            return _REJECTED
        tags = [str(member.tag) for member in members]
        tag = value[tag_field]
        near = self._find_nearest(tag, tags) if isinstance(tag, str) else ""
        reason = f"expected {join_choices(map(quote_word, tags))}"
        self.findings.append(ConfigFinding(path=(*path, tag_field), reason=reason, near=near))
        return _REJECTED

    def _visit_best(self, value: dict[str, Any], members: list[inspect.StructType], path: KeyPath) -> Any:
        trials = []
        for member in members:
            trial = _Checker(is_complete=False)
            trial._searches = self._searches
            trials.append((trial.visit(value, member, path), trial.findings))
            self._searches = trial._searches
        kept, findings = min(trials, key=lambda trial: len(trial[1]))
        self.findings.extend(findings)
        return kept

    def _visit_struct(
        self, value: dict[str, Any], kind: inspect.Type, path: KeyPath, *, accepts_unknown: bool = False
    ) -> Any:
        assert isinstance(kind, inspect.StructType)
        fields = {field.encode_name: field for field in kind.fields}
        accepts_unknown = accepts_unknown or getattr(kind.cls, "accepts_unknown", False)
        kept: dict[str, Any] = {}
        for key, item in value.items():
            item_path = (*path, key)
            if key in fields:
                checked = self.visit(item, fields[key].type, item_path)
                if checked is not _REJECTED:
                    kept[key] = checked
            elif key == kind.tag_field or self._admit_unknown(
                item_path, fields, accepts_unknown=accepts_unknown
            ):
                kept[key] = item
        missing = [name for name, field in fields.items() if field.required and name not in kept]
        if self.is_complete and missing:
            self.findings.append(
                ConfigFinding(
                    path=path,
                    reason=f"{join_choices(map(quote_word, missing), 'and')} {'is' if len(missing) == 1 else 'are'} missing",
                )
            )
            return _REJECTED
        return kept

    def _admit_unknown(self, path: KeyPath, known: Iterable[str], *, accepts_unknown: bool) -> bool:
        # Where any key is allowed, report only likely typos of a known key.
        near = self._find_nearest(path[-1], known, cutoff=0.8 if accepts_unknown else 0.6)
        if near or not accepts_unknown:
            reason = "unknown key, passed on as an option" if accepts_unknown else "unknown key, ignored"
            self.findings.append(ConfigFinding(path=path, reason=reason, near=near, is_warning=True))
        return accepts_unknown

    def _visit_dict(self, value: dict[str, Any], kind: inspect.DictType, path: KeyPath) -> dict[str, Any]:
        checked = {key: self.visit(item, kind.value_type, (*path, key)) for key, item in value.items()}
        return {key: item for key, item in checked.items() if item is not _REJECTED}

    def _visit_list(self, value: list[Any], kind: inspect.VarTupleType, path: KeyPath) -> Any:
        checked = [self.visit(item, kind.item_type, (*path, str(index))) for index, item in enumerate(value)]
        # A list is accepted only as a whole: a command without one of its words is another command.
        return _REJECTED if any(item is _REJECTED for item in checked) else checked

    def _drop_unknown_keybinds(self, value: dict[str, Any], path: KeyPath) -> dict[str, Any]:
        known = get_default_keybinds()
        return {
            key: item
            for key, item in value.items()
            if key in known or self._admit_unknown((*path, key), known, accepts_unknown=False)
        }

    def _visit_permission(self, value: Any, path: KeyPath) -> dict[str, Any]:
        if not isinstance(value, dict):
            return {"*": self._check_action(value, path)}
        # OpenCode adds the key `__originalKeys`, the order of the others, and its clients may send it back.
        return {
            key: {
                pattern: self._check_action(action, (*path, key, pattern)) for pattern, action in item.items()
            }
            if isinstance(item, dict)
            else self._check_action(item, (*path, key))
            for key, item in value.items()
            if key != "__originalKeys"
        }

    def _check_action(self, value: Any, path: KeyPath) -> str:
        if value in ACTIONS:
            return str(value)
        # An invalid rule must not allow what it may have been meant to deny.
        near = self._find_nearest(value, ACTIONS) if isinstance(value, str) else ""
        self.findings.append(ConfigFinding(path=path, reason='expected "ask", "allow" or "deny"', near=near))
        return "ask"
