"""Loads configuration: layers, in order, merged; nothing that is broken takes the rest down.

From the weakest to the strongest word:

1. what organisations publish for those who logged in (`.well-known`);
2. the person's configuration directory: `config.json`, `opencode.json`, `opencode.jsonc`, then its agents, commands,
   modes and plugins;
3. `~/.opencode`, likewise;
4. the file that `OPENCODE_CONFIG` names;
5. project files: every `opencode.jsonc` from the top of the checkout down to the directory, then every `opencode.json`
   (so one at the top beats a `.jsonc` further down, as in OpenCode);
6. project directories: every `.opencode` from the top down, so that the nearest wins;
7. the directory that `OPENCODE_CONFIG_DIR` names;
8. `OPENCODE_CONFIG_CONTENT`.

OpenCode documents that the nearer and the more explicit wins, and does otherwise: a global agent beats a project's file,
the top `.opencode` beats the nearest, `~/.opencode` beats both, and all of them beat `OPENCODE_CONFIG_CONTENT`.
`WEFT_CONFIG_ORDER=opencode` gives that order, to the letter.

Unlike OpenCode, loading writes nothing (no `$schema` into a person's file, no `package.json`) and installs nothing.
"""

import os
from collections.abc import Iterator, Mapping

from msgspec import Struct, convert

from weft.config.check import check
from weft.config.definitions import read_definitions
from weft.config.finish import DEFAULT, finish
from weft.config.flags import Flags, read_flags
from weft.config.jsonc import Document, Finding, KeyPath
from weft.config.layer import Layer, Merged, Origin, Problems, from_toml, make_layer, read_text
from weft.config.remote import Fetch, Remote, fetch_layer, list_logins
from weft.config.schema import Config
from weft.config.sources import Directory, File, Inline, Situation, Source, list_sources
from weft.config.substitute import Resolve, bounded_resolver, resolver
from weft.config.trust import Held, find_root, hold_back, hold_tools, is_inside, is_plain, narrowed
from weft.errors import ConfigError


class Loaded(Struct, frozen=True, kw_only=True):
    """Configuration, and how it came about.

    `origins` tells the source of every setting; an entry of `plugin` and `instructions` has its own. `layers` are
    the sources that spoke, the weakest first. A problem is a setting or a file that is not in force, a warning is not.
    `environment` is to be added for what the organisations in `layers` configure. `directories` are the configuration
    directories there are, the weakest first. `vouched` is what it comes to without a project that nobody has vouched
    for: the same as `config` for one that is trusted. `held` is what such a project says or brings, and what is not in
    force for that.
    """

    config: Config
    vouched: Config
    origins: Mapping[KeyPath, Origin]
    layers: tuple[Layer, ...]
    problems: tuple[ConfigError, ...]
    warnings: tuple[ConfigError, ...]
    environment: Mapping[str, str]
    directories: tuple[str, ...]
    held: tuple[Held, ...] = ()


def load_config(situation: Situation, *, fetch: Fetch | None = None, strict: bool = False) -> Loaded:
    """The configuration in force. With `strict`, raises the first problem instead of going on without.

    Without `fetch`, what an organisation publishes is read from the copy that was made when it was last fetched.
    """
    flags, problems = read_flags(situation.env), Problems()
    problems.warnings += [ConfigError("environment", warning) for warning in flags.warnings]
    logins = list_logins(situation.paths.auth_file, problems)
    environment = {login.key: login.token for login in logins}
    env = {**situation.env, **environment}
    remote = Remote(situation.paths.cache, fetch)
    layers = [layer for login in logins if (layer := fetch_layer(login, remote, env, problems)) is not None]
    problems.warnings += remote.stale
    sources = list_sources(situation, flags)
    layers += [layer for source in sources for layer in _read(source, situation, env, problems)]
    held: list[Held] = []
    if not situation.trusted:
        layers, held = hold_back(layers, situation)
        held += hold_tools(sources)
    merged = _merge(layers, flags, situation.env, problems)
    if strict and problems.errors:
        raise problems.errors[0]
    config = convert(merged.data, Config)
    own = [layer for layer in layers if layer.origin.own or situation.trusted]
    vouched = config if len(own) == len(layers) else _without_others(own, flags, situation.env)
    return Loaded(
        config=config if vouched is config else narrowed(config, vouched),
        vouched=vouched,
        origins=merged.origins,
        layers=tuple(layers),
        problems=tuple(problems.errors),
        warnings=tuple(problems.warnings),
        environment=environment,
        directories=_list_directories(sources),
        held=tuple(held),
    )


def _without_others(own: list[Layer], flags: Flags, env: Mapping[str, str]) -> Config:
    """What is wrong in these layers has been noted."""
    return convert(_merge(own, flags, env, Problems()).data, Config)


def _merge(layers: list[Layer], flags: Flags, env: Mapping[str, str], problems: Problems) -> Merged:
    merged = Merged()
    for layer in layers:
        merged.add(layer)
    finish(merged, flags, env, problems)
    data, findings = check(merged.data, whole=True)
    for finding in findings:
        _note_incomplete(finding, merged, layers, problems)
        merged.remove(finding.path)
    merged.data = data
    return merged


def _note_incomplete(finding: Finding, merged: Merged, layers: list[Layer], problems: Problems) -> None:
    """What no layer completed is told of the one that began it."""
    origin = merged.origin_of(finding.path) or DEFAULT
    layer = next((layer for layer in layers if layer.origin == origin), None)
    problems.note(origin, layer, [finding])


def _list_directories(sources: list[Source]) -> tuple[str, ...]:
    named = (source.origin.path for source in sources if isinstance(source, Directory))
    return tuple(dict.fromkeys(path for path in named if os.path.isdir(path)))


def _read(
    source: Source, situation: Situation, env: Mapping[str, str], problems: Problems
) -> Iterator[Layer]:
    try:
        match source:
            case Directory(origin):
                yield from read_definitions(origin, problems)
            case Inline(origin, text):
                yield from _read_document(origin, text, None, problems)
            case File():
                yield from _read_file(source, situation, env, problems)
    except ConfigError as error:
        problems.errors.append(error)


def _read_file(
    source: File, situation: Situation, env: Mapping[str, str], problems: Problems
) -> Iterator[Layer]:
    origin = source.origin
    text = read_text(origin.path)
    if text is None:
        if source.named:
            raise ConfigError(origin.path, "does not exist")
        return
    if os.path.basename(origin.path) == "config":
        yield make_layer(origin, from_toml(origin.path, text), None, problems)
        return
    yield from _read_document(origin, text, _resolver(origin, situation, env), problems)


def _resolver(origin: Origin, situation: Situation, env: Mapping[str, str]) -> Resolve:
    directory = os.path.dirname(origin.path)
    if origin.own or situation.trusted:
        return resolver(env, directory=directory, home=situation.paths.os_home)
    # A project that nobody has vouched for could send what it names to wherever it likes.
    root = find_root(situation, origin.path)
    return bounded_resolver(directory, lambda path: is_inside(path, root) and is_plain(path, root))


def _read_document(origin: Origin, text: str, resolve: Resolve | None, problems: Problems) -> Iterator[Layer]:
    try:
        document = Document(origin.path, text, resolve)
    except ConfigError as error:
        problems.errors.append(error)
        if '"permission"' in text or '"tools"' in text:
            # One comma too few must not set free what the file was there to hold back.
            reason = 'rules that cannot be read; until they can, everything is "ask"'
            problems.errors.append(ConfigError(origin.path, reason, key="permission"))
            yield Layer(origin=origin, data={"permission": {"*": "ask"}})
        return
    problems.note(origin, document, document.findings)
    yield make_layer(origin, document.value, document, problems)
