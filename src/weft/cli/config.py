"""`weft config`: what is in force, where it comes from, and what is wrong with it."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import asdict

from weft.cli.exit import Exit
from weft.cli.offers import warn
from weft.cli.paint import Paint, escape
from weft.config.jsonc import KeyPath
from weft.config.layer import Origin
from weft.config.load import Loaded, load_config
from weft.config.secrets import mask, secret_values
from weft.config.sources import Situation
from weft.errors import ConfigError
from weft.host.paths import paths_from
from weft.model.wire import to_plain
from weft.project.look import look
from weft.trust.decision import is_trusted, list_held_back, to_warning


def config_command(chosen: argparse.Namespace) -> int:
    at = look(chosen.dir)
    return show_config(at.directory, at.top or at.directory, os.environ, as_json=chosen.format == "json")


def show_config(directory: str, worktree: str, env: Mapping[str, str], *, as_json: bool) -> int:
    """Prints every setting in force and its source, secrets covered. Gives 2 if something is not in force, else 0."""
    paths = paths_from(env)
    trusted = is_trusted(paths, env, worktree, directory)
    situation = Situation(directory=directory, worktree=worktree, paths=paths, env=env, trusted=trusted)
    loaded = load_config(situation)
    held = [] if trusted else list_held_back(loaded, situation)
    secrets = secret_values({**env, **loaded.environment})
    shown = mask(to_plain(loaded.config), secrets=secrets | set(loaded.environment.values()))
    if as_json:
        report = _to_report(loaded, shown) | {"trusted": trusted, "held": [asdict(each) for each in held]}
        print(escape(json.dumps(report, indent=2, default=str)))
    else:
        for line in _to_lines(loaded, shown, Paint(sys.stdout)):
            print(line)
    _print_problems(loaded, Paint(sys.stderr))
    if held and not as_json:
        warn(to_warning(situation, held))
    return Exit.USAGE if loaded.problems else Exit.DONE


def _to_lines(loaded: Loaded, shown: dict[str, Any], paint: Paint) -> Iterator[str]:
    for path, value in _leaves(shown):
        origin = _origin(loaded, path)
        # Ninety keys that nobody chose would bury the rest.
        if path[0] == "keybinds" and (origin is None or origin.kind == "default"):
            continue
        text = escape(json.dumps(value, ensure_ascii=False, default=str))
        yield f"{_dotted(path)} = {text}  {paint.dim('# ' + _source(loaded, path, origin))}"


def _leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict) and (value or not path):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif path in (("plugin",), ("instructions",)):
        for index, item in enumerate(value):
            yield (*path, str(index)), item
    else:
        yield path, value


def _dotted(path: KeyPath) -> str:
    return ".".join(key if key and not set(key) & set('. "=') else json.dumps(key) for key in path)


def _origin(loaded: Loaded, path: KeyPath) -> Origin | None:
    return next(
        (loaded.origins[path[:end]] for end in range(len(path), 0, -1) if path[:end] in loaded.origins), None
    )


def _source(loaded: Loaded, path: KeyPath, origin: Origin | None) -> str:
    if origin is None or origin.kind == "default":
        return "default"
    line = _line(loaded, path, origin)
    return f"{origin.path}:{line}" if line else origin.path


def _line(loaded: Loaded, path: KeyPath, origin: Origin) -> int:
    layer = next((layer for layer in loaded.layers if layer.origin == origin), None)
    return layer.at(path)[0] if layer is not None else 0


def _to_report(loaded: Loaded, shown: dict[str, Any]) -> dict[str, Any]:
    return {
        "config": shown,
        "origins": [_to_origin(loaded, path, origin) for path, origin in loaded.origins.items()],
        "problems": [_to_problem(error) for error in loaded.problems],
        "warnings": [_to_problem(error) for error in loaded.warnings],
        "directories": list(loaded.directories),
    }


def _to_origin(loaded: Loaded, path: KeyPath, origin: Origin) -> dict[str, Any]:
    line = _line(loaded, path, origin)
    return {"key": list(path), "kind": origin.kind, "path": origin.path, "line": line, "own": origin.own}


def _to_problem(error: ConfigError) -> dict[str, Any]:
    return {
        "path": error.path,
        "line": error.line,
        "column": error.column,
        "key": error.key,
        "reason": error.reason,
        "near": error.near,
    }


def _print_problems(loaded: Loaded, paint: Paint) -> None:
    for label, errors in ((paint.red("error"), loaded.problems), (paint.yellow("warning"), loaded.warnings)):
        for error in errors:
            hint = f" ({error.hint})" if error.hint else ""
            print(f"{label}: {error}{hint}", file=sys.stderr)
