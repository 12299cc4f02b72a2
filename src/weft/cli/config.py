"""`weft config`: show all settings, where they come from, and what is wrong with them."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import asdict

from weft.cli.arguments import add_format, add_place
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, escape_json, warn
from weft.config.jsonc import KeyPath
from weft.config.layer import ConfigOrigin
from weft.config.load import LoadedConfig, load_config
from weft.config.secrets import list_secret_values, redact_settings
from weft.config.sources import ConfigScope
from weft.errors import ConfigError
from weft.host.paths import paths_from
from weft.model.wire import to_plain
from weft.project.checkout import find_checkout
from weft.trust.decision import is_trusted, list_held_back, to_warning
from weft.trust.looser import list_looser

DEFAULT_SOURCE = "default"


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    add_place(parser)


def show_config_command(args: argparse.Namespace) -> int:
    checkout = find_checkout(args.dir)
    return show_config(
        checkout.directory, checkout.top or checkout.directory, os.environ, as_json=args.format == "json"
    )


def show_config(directory: str, worktree: str, env: Mapping[str, str], *, as_json: bool) -> int:
    """Print every setting and its source, with secrets redacted. Return 2 if a part of the configuration is broken."""
    scope = read_scope(directory, worktree, env)
    loaded = load_config(scope)
    held_back = [] if scope.trusted else list_held_back(loaded, scope)
    looser = list_looser(loaded, scope)
    secrets = list_secret_values({**env, **loaded.environment})
    settings = redact_settings(to_plain(loaded.config), secrets=secrets | set(loaded.environment.values()))
    if as_json:
        report = _to_report(loaded, settings) | {
            "trusted": scope.trusted,
            "held": [asdict(each) for each in held_back],
            "looser": [asdict(each) for each in looser],
        }
        print(escape_json(json.dumps(report, indent=2, default=str)))
    else:
        for line in _to_lines(loaded, settings, Paint(sys.stdout)):
            print(line)
    _print_problems(loaded, Paint(sys.stderr))
    if held_back and not as_json:
        warn(to_warning(scope, held_back))
    if looser and not as_json:
        warn(to_warning(scope, looser, "without effect where they are looser than your settings"))
    return ExitCode.USAGE if loaded.problems else ExitCode.DONE


def load_and_warn(directory: str, worktree: str, env: Mapping[str, str]) -> tuple[ConfigScope, LoadedConfig]:
    """Load the configuration of a directory, and print a warning for each problem in it."""
    scope = read_scope(directory, worktree, env)
    loaded = load_config(scope)
    for problem in (*loaded.problems, *loaded.warnings):
        warn(problem)
    return scope, loaded


def read_scope(directory: str, worktree: str, env: Mapping[str, str]) -> ConfigScope:
    paths = paths_from(env)
    trusted = is_trusted(paths, env, worktree, directory)
    return ConfigScope(directory=directory, worktree=worktree, paths=paths, env=env, trusted=trusted)


def _to_lines(loaded: LoadedConfig, settings: dict[str, Any], paint: Paint) -> Iterator[str]:
    for path, value in _list_leaves(settings):
        source = format_source(loaded, path)
        # Ninety default key bindings would hide the settings that somebody chose.
        if path[0] == "keybinds" and source == DEFAULT_SOURCE:
            continue
        text = escape_json(json.dumps(value, ensure_ascii=False, default=str))
        yield f"{_join_key(path)} = {text}  {paint.dim('# ' + source)}"


def _list_leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict) and (value or not path):
        for key, item in value.items():
            yield from _list_leaves(item, (*path, key))
    elif path in (("plugin",), ("instructions",)):
        for index, item in enumerate(value):
            yield (*path, str(index)), item
    else:
        yield path, value


def _join_key(path: KeyPath) -> str:
    return ".".join(key if key and not set(key) & set('. "=') else json.dumps(key) for key in path)


def format_source(loaded: LoadedConfig, path: KeyPath) -> str:
    """Return where a setting comes from: a file with a line, another source, or `default`."""
    origin = loaded.find_origin(path)
    if origin is None or origin.kind == "default":
        return DEFAULT_SOURCE
    line = _find_line(loaded, path, origin)
    return f"{origin.path}:{line}" if line else origin.path


def _find_line(loaded: LoadedConfig, path: KeyPath, origin: ConfigOrigin) -> int:
    layer = next((layer for layer in loaded.layers if layer.origin == origin), None)
    return layer.locate(path)[0] if layer is not None else 0


def _to_report(loaded: LoadedConfig, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "config": settings,
        "origins": [_to_origin(loaded, path, origin) for path, origin in loaded.origins.items()],
        "problems": [_to_problem(error) for error in loaded.problems],
        "warnings": [_to_problem(error) for error in loaded.warnings],
        "directories": list(loaded.directories),
    }


def _to_origin(loaded: LoadedConfig, path: KeyPath, origin: ConfigOrigin) -> dict[str, Any]:
    line = _find_line(loaded, path, origin)
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


def _print_problems(loaded: LoadedConfig, paint: Paint) -> None:
    for label, errors in ((paint.red("error"), loaded.problems), (paint.yellow("warning"), loaded.warnings)):
        for error in errors:
            hint = f" ({error.hint})" if error.hint else ""
            print(f"{label}: {error}{hint}", file=sys.stderr)
