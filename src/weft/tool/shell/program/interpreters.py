"""Examine shells and interpreters: what they run from their command line or input."""

import re
import unicodedata
from typing import Final

from msgspec import Struct

from weft.model.permission import has_hole
from weft.tool.shell.arguments import Field, Fields, ParsedArguments, parse_arguments, split_names
from weft.tool.shell.grammar import reads_like_bash
from weft.tool.shell.paths import is_secret
from weft.tool.shell.program.effects import Inner, InnerScript
from weft.tool.shell.program.stream import touch_backups
from weft.tool.shell.program.touches import touch_paths
from weft.tool.shell.state import ShellState, StreamContent

_DANGEROUS_CODE_REASON: Final = "code on the command line that reaches for files, programs or the network"
# A call that opens a file by its name, with the mode.
_OPEN_CALL: Final = re.compile(
    r"""\b(?:open|readFileSync|readFile|writeFileSync|appendFileSync|require|file_get_contents|File\.read)"""
    r"""\(\s*(["'])(?P<path>[^"'\\$#{}\n]*)\1\s*(?:,\s*(?:mode\s*=\s*)?["'](?P<mode>[\w+-]*)["'])?\s*(?P<end>\))"""
)
_STRING_LITERAL: Final = re.compile(r"""(["'])((?:(?!\1)[^\\\n]|\\.)*)\1""")
_WRITE_MODE: Final = re.compile(r"[wax+]|^utf")
# Names by which code reaches files, programs or the network. Not every library is covered: this is a precaution and not
# a proof.
_DANGEROUS_NAMES = """
open exec eval execfile compile system popen spawn spawnSync execSync execFile fork subprocess pty socket urllib requests
httplib http https net fetch XMLHttpRequest ctypes cffi importlib runpy __\\w+__ getattr setattr globals locals vars
builtins os shutil pathlib Path io fileinput linecache tempfile glob zipfile tarfile sqlite3 pickle marshal mmap
fs child_process process\\.(?:binding|mainModule|dlopen) vm worker_threads Function Reflect Bun Deno
require unlink remove rename rmtree rmdir removedirs IO File FileUtils Dir Kernel Process Open3 Pathname Tempfile syscall
qx readpipe glob sysopen opendir do\\s+shell shell_exec passthru proc_open popen fopen readfile include include_once
require_once file_put_contents dofile loadfile loadstring package\\.loadlib
posix _posixsubprocess _io breakpoint webbrowser ftplib smtplib telnetlib pkgutil imp
symlink highlight_file show_source readgzfile gzfile parse_ini_file call_user_func SplFileObject fsockopen curl_init
writeLines readLines sink saveRDS readRDS download\\.file file\\.(?:remove|rename|append|create|copy|symlink|edit) Sys\\.chmod
dbmopen __send__ public_send
"""
_DANGEROUS_CODE: Final = re.compile(
    rf"(?<![\w.])(?:{'|'.join(_DANGEROUS_NAMES.split())})\b|\bimport\s*\(|\.(?:open|getBuiltinModule|system|popen|spawn|exec|constructor)\b|(?<![\w.$])file\s*\("
)
# `import x from "fs"` and `import "fs"` name a module in a text.
_IMPORTED_MODULE: Final = re.compile(r"""\b(from|import)\s*(["'])(?:node:)?([\w/]+)\2""")
# With these, code of Perl or Ruby changes which files it reads, or changes them.
_ARGUMENT_LIST: Final = re.compile(
    r"@ARGV\s*\)?\s*=(?![=~])|\b(?:push|unshift|splice)\W{0,3}@ARGV\b|\*ARGV\b|::ARGV\b|\$\^I\b|\$ARGV\[[^]]*\]\s*=(?!=)|\bARGV\s*(?:<<|\.(?:push|append|unshift|prepend|insert|replace|concat)\b|\[[^]]*\]\s*=(?!=))"
)
_SHELL_CALL: Final = re.compile(r"`|%x\s*\W|\bqx\b|<\s*\$?\w*\s*>|\|\s*-?['\"]")


def examine_code(code: str, state: ShellState, *, backticks_run: bool = False) -> None:
    """Note the files that a piece of code names.

    Code that may do more is unclear. `backticks_run` means that backticks run programs in this language.
    """
    # Python takes letters that look like others for these: `ｏpen`.
    code = _IMPORTED_MODULE.sub(r"\1 \3 ", unicodedata.normalize("NFKC", code))
    for match in _OPEN_CALL.finditer(code):
        writes = (
            "write" in match[0].partition("(")[0]
            or "append" in match[0]
            or _WRITE_MODE.search(match["mode"] or "")
        )
        path = match["path"]
        if not match[0].startswith("require") or path.startswith((".", "/")):
            state.touch(Field(path), "write" if writes and "utf" not in (match["mode"] or "") else "read")
    remaining = _OPEN_CALL.sub(_remove_open_call, code)
    for match in _STRING_LITERAL.finditer(remaining):
        if _is_path(match[2], state):
            state.touch(Field(match[2]), "read")
    if _DANGEROUS_CODE.search(_STRING_LITERAL.sub('""', remaining)) or (
        backticks_run and (_SHELL_CALL.search(remaining) or _ARGUMENT_LIST.search(remaining))
    ):
        state.mark_unclear(code, _DANGEROUS_CODE_REASON)


def _remove_open_call(match: re.Match[str]) -> str:
    """Keep the names of modules that are not files, because some of them are dangerous."""
    path = match["path"]
    if match[0].startswith("require") and not path.startswith((".", "/")):
        return f" {path.removeprefix('node:')} "
    return '""'


def _is_path(text: str, state: ShellState) -> bool:
    if not text or "\n" in text or " " in text:
        return False
    if is_secret(text.rpartition("/")[2]) or text.startswith(("/", "~/", "../")):
        return text not in ("/", "//")
    return "/" in text and any(state.location.exists(text, cwd) for cwd in state.cwds or ())


_SHELLS: Final = frozenset({"bash", "sh", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "yash", "posh"})
_BASH_LONG_OPTIONS: Final = split_names(
    "debug debugger dump-po-strings dump-strings help init-file login noediting noprofile norc posix pretty-print protected rcfile"
    " restricted verbose version wordexp"
)
_FOREIGN_LANGUAGES: Final = split_names(
    "fish nu csh tcsh pwsh powershell elvish xonsh osascript expect tclsh wish ipython julia groovy scala elixir iex erl"
    " ghc ghci clojure clj racket guile sbcl ocaml R mongo mongosh m4 bc dc"
)
# Modules of Python that take code or commands as arguments.
_CODE_MODULES: Final = split_names("timeit pdb cProfile profile trace IPython code")
# Modules of Python that run their input as code.
_INPUT_MODULES: Final = split_names("code pdb asyncio IPython idlelib sqlite3")
# Settings of PHP that neither load nor write a file.
_HARMLESS_PHP_SETTING: Final = re.compile(
    r"(?i)(?:memory_limit|max_execution_time|display_errors|display_startup_errors|error_reporting|date\.timezone|zend\.assertions"
    r"|assert\.\w+|xdebug\.mode|opcache\.enable(?:_cli)?|short_open_tag|phar\.readonly|precision|log_errors|html_errors)(?:=|$)"
)
# Perl runs or writes what it takes for a file: `ls|`, `>x`.
_PERL_OPENING: Final = re.compile(r"\s*[|<>+]|[\s\S]*\|\s*$")
# Libraries of Ruby that are commands.
_RUBY_COMMANDS: Final = frozenset({"un"})
_STDIN_PATHS: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


class Interpreter(Struct, frozen=True, kw_only=True):
    """The options of an interpreter.

    The values of `code` options are code, those of `files` options are files that run first, those of `modules` options
    are modules, those of `writes` files or directories that are written, and those of `loads` names of modules
    that code may follow. `value_options` are all options that take a value, these included. `backticks_run` means that backticks
    run programs.
    """

    code: frozenset[str]
    value_options: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    loads: frozenset[str] = frozenset()
    backticks_run: bool = False


def _make_interpreter(
    code: str,
    value_options: str = "",
    files: str = "",
    modules: str = "",
    *,
    writes: str = "",
    loads: str = "",
    backticks_run: bool = False,
) -> Interpreter:
    return Interpreter(
        code=split_names(code),
        value_options=split_names(f"{code} {value_options} {files} {modules} {writes} {loads}"),
        files=split_names(files),
        modules=split_names(modules),
        writes=split_names(writes),
        loads=split_names(loads),
        backticks_run=backticks_run,
    )


_PYTHON: Final = _make_interpreter("-c", "-W -X --check-hash-based-pycs", modules="-m")
_PERL: Final = _make_interpreter("-e -E", "-I", loads="-M -m", backticks_run=True)
_RUBY: Final = _make_interpreter("-e", "-I -E -C -X", "-r", backticks_run=True)
_NODE: Final = _make_interpreter(
    "-e -p --eval --print",
    "-C -O --compiler-options",
    "-r --require --preload --import --loader --experimental-loader --env-file --env-file-if-exists",
    writes="--redirect-warnings --tls-keylog --cpu-prof-dir --heap-prof-dir --diagnostic-dir --report-directory --report-dir"
    " --report-filename --logfile --localstorage-file --trace-event-file-pattern --test-reporter-destination"
    " --experimental-sea-config --build-snapshot-config --cpu-prof-name --heap-prof-name --snapshot-blob --redirect-code-traces-to"
    " --turbo-profiling-output --trace-turbo-path --trace-turbo-file-prefix --perf-prof-path",
)
_PHP: Final = _make_interpreter(
    "-r -B -R -E --run --process-begin --process-code --process-end",
    "-d -c -t -S -z --define --zend-extension --php-ini --server --docroot",
    "-f -F --file --process-file",
    backticks_run=True,
)
_LUA: Final = _make_interpreter("-e", "-j", files="-l")
_R: Final = _make_interpreter("-e", files="-f")
_INTERPRETERS: Final = {
    "pypy": _PYTHON, "perl": _PERL, "ruby": _RUBY, "node": _NODE, "nodejs": _NODE, "bun": _NODE,
    "tsx": _NODE, "ts-node": _NODE, "php": _PHP, "lua": _LUA, "luajit": _LUA, "Rscript": _R,
}  # fmt: skip


def find_interpreter(name: str) -> Interpreter | None:
    if re.fullmatch(r"python[\d.]*w?|pypy[\d.]*", name):
        return _PYTHON
    return _INTERPRETERS.get(re.sub(r"[\d.]+$", "", name))


def examine_interpreter(
    name: str, arguments: Fields, state: ShellState, stdin: StreamContent | None
) -> list[Inner] | None:
    """Note what an interpreter runs, and return the scripts. Return None if the program is not an interpreter."""
    if name in _SHELLS:
        return _examine_shell(name, arguments, state, stdin)
    if name in _FOREIGN_LANGUAGES:
        return _examine_foreign(name, arguments, state, stdin)
    if name == "deno":
        return _examine_deno(arguments, state, stdin)
    language = find_interpreter(name)
    if language is None:
        return None
    _examine_arguments(name, language, arguments, state, stdin)
    return []


def _examine_shell(
    name: str, arguments: Fields, state: ShellState, stdin: StreamContent | None
) -> list[Inner]:
    remaining = list(arguments)
    has_command = is_interactive = False
    while remaining and (remaining[0].text.startswith(("-", "+")) and remaining[0].text not in _STDIN_PATHS):
        option = remaining.pop(0).text
        if option[1:] in _BASH_LONG_OPTIONS:  # bash takes them with one dash as well
            option = f"-{option}"
        if option == "--":
            break
        if option in ("--rcfile", "--init-file", "-o", "+o", "-O", "+O") and remaining:
            value = remaining.pop(0)
            if option.startswith("--"):
                state.touch(value, "read")
        elif not option.startswith("--"):
            # Each `o` takes a word, as in `bash -euo pipefail -c …`.
            del remaining[: len(re.findall("[oO]", option))]
            has_command |= "c" in option and option.startswith("-")
            is_interactive |= "i" in option and option.startswith("-")
            # With `-s`, the words are arguments and the script comes from the input.
            if "s" in option.lstrip("-+") and not has_command:
                remaining.clear()
    if has_command:
        _examine_dialect(name, remaining[0].text if remaining else "", state)
        return [InnerScript(text=remaining[0].text, stdin=stdin)] if remaining else []
    if remaining and remaining[0].text not in _STDIN_PATHS:
        _examine_file(name, remaining[0], state)
        return []
    if is_interactive:
        state.mark_unclear(f"{name} -i", f"an interactive {name} runs what its history says, and changes it")
    return _examine_shell_input(name, state, stdin)


def _examine_file(name: str, field: Field, state: ShellState) -> None:
    if field.text.startswith(("/dev/", "/proc/")):
        state.mark_unclear(f"{name} {field.text}", f"what {name} is given to run is not known")
    state.touch(field, "read")


def _examine_shell_input(name: str, state: ShellState, stdin: StreamContent | None) -> list[Inner]:
    if stdin is None:
        return []
    if stdin.text is None:
        state.mark_unclear(f"{name} of its input", f"what {name} is given to run is not known")
        return []
    _examine_dialect(name, stdin.text, state)
    return [InnerScript(text=stdin.text)]


def _examine_dialect(name: str, text: str, state: ShellState) -> None:
    if not reads_like_bash(text, name):
        state.mark_unclear(f"{name} -c {text}", f"{name} may read it differently than bash")


def _examine_foreign(
    name: str, arguments: Fields, state: ShellState, stdin: StreamContent | None
) -> list[Inner]:
    """Mark the code of languages that we cannot read as unclear."""
    words = [field for field in arguments if not field.text.startswith("-")]
    # Without a word, some of them begin a session: fish reads its settings then, and creates them at its first start.
    if stdin is not None or not words or len(words) < len(arguments):
        state.mark_unclear(
            " ".join([name, *(field.text for field in arguments)]),
            f"what {name} is given to run cannot be judged",
        )
    for field in words[:1]:
        state.touch(field, "read")
    return []


def _examine_deno(arguments: Fields, state: ShellState, stdin: StreamContent | None) -> list[Inner]:
    words = [field for field in arguments if not field.text.startswith("-")]
    if any(field.text == "eval" for field in words[:2]):
        for field in words:  # some of them may be values of options
            if field.text != "eval":
                _examine_code_field(field, state, backticks_run=False)
    if stdin is not None and (not words or words[0].text in ("repl", "run")):
        _examine_input("deno", _NODE, state, stdin)
    return []


def _examine_arguments(
    name: str, language: Interpreter, arguments: Fields, state: ShellState, stdin: StreamContent | None
) -> None:
    # Everything after a module's name, or after Python code, is an argument for it.
    last_options = language.modules | (language.code if language.modules else frozenset())
    if language is _NODE:
        arguments = tuple(
            Field("-e") if field.text == "-pe" else _hyphenate_option(field)
            for field, after in zip(arguments, (*arguments, Field(""))[1:], strict=True)
            if field.text not in ("-p", "--print") or not after.text.startswith("-")
        )
    parsed = parse_arguments(arguments, language.value_options, until_word=True, last_options=last_options)
    code, words = parsed.values(*language.code), parsed.words
    before = arguments[-len(words) - 1].text if words and len(arguments) > len(words) else ""
    if re.fullmatch(r"--[\w-]+", before) and before not in language.value_options:
        # The first word may be the value of this option.
        has_no_input = _VALUELESS_OPTION.fullmatch(before) is not None
        _examine_arguments(name, language, words[1:], state, None if has_no_input else stdin)
    if any(field.text in _CODE_MODULES for field in parsed.values(*language.modules)):
        code = [*code, *words]
    for field in code:
        _examine_code_field(field, state, backticks_run=language.backticks_run)
    for field in parsed.values(*language.files):
        state.touch(field, "read")
        if re.match(r"data:|https?:", field.text):
            state.mark_unclear(f"{name} {field.text}", "it runs the code of an address")
    for field in parsed.values(*language.loads):
        _examine_code_field(field, state, backticks_run=language.backticks_run)
    for field in parsed.values(*language.writes):
        state.touch_all(field, "write")
    modules = [field.text for field in parsed.values(*language.modules)]
    is_interactive = parsed.has("-d" if language is _PERL else "-i") and language is not _RUBY
    if stdin is not None and (is_interactive or not _INPUT_MODULES.isdisjoint(modules)):
        _examine_input(name, language, state, stdin)
    _examine_options(language, parsed, state)
    for field in (
        parse_arguments(words, split_names("--indent")).words[1:] if modules == ["json.tool"] else ()
    ):
        state.touch(field, "write")
    if not code and not parsed.has(*language.modules):
        if words and words[0].text not in _STDIN_PATHS:
            _examine_file(name, words[0], state)
        elif stdin is not None and not parsed.has("--version", "-V", "--help"):
            _examine_input(name, language, state, stdin)
        words = words[1:]
    touch_paths(words, state)
    _touch_perl_files(name, parsed, arguments, words, state)


def _touch_perl_files(
    name: str, parsed: ParsedArguments, arguments: Fields, words: Fields, state: ShellState
) -> None:
    """Note files that Perl runs or writes because of their names, and those that Perl and Ruby change in place."""
    for field in words if name.startswith("perl") else ():
        if _PERL_OPENING.match(field.text):
            state.mark_unclear(f"perl {field.text}", "perl may run a program of that name, or write the file")
    if parsed.has("-i") and name in ("perl", "ruby"):
        matches = (re.match(r"-[a-hj-zA-Z0-9]*i(.*)", field.text) for field in arguments)
        suffixes = [match[1] for match in matches if match]
        for field in words:
            state.touch(field, "write")
            touch_backups(field, suffixes, state)


# Long options of node that never take the next word.
_VALUELESS_OPTION: Final = re.compile(
    r"--(?:inspect(?:-brk|-wait)?|watch|test|trace-\w+|experimental-[\w-]+|no-[\w-]+|enable-[\w-]+|expose-[\w-]+|harmony[\w-]*"
    r"|preserve-[\w-]+|throw-\w+|check|interactive|pending-deprecation|prof|cpu-prof|heap-prof|smol|bun|hot|silent|vanilla|slave)"
)


def _hyphenate_option(field: Field) -> Field:
    """Write a long option of node with hyphens. It takes underscores as well."""
    option, equals, value = field.text.partition("=")
    if not option.startswith("--") or "_" not in option or not field.is_known:
        return field
    return Field(f"{option.replace('_', '-')}{equals}{value}")


def _examine_options(language: Interpreter, parsed: ParsedArguments, state: ShellState) -> None:
    """Note options of an interpreter that load a library, or go to another directory."""
    if language is _PHP:
        for field in parsed.values("-z", "-d", "--define", "--zend-extension"):
            if not _HARMLESS_PHP_SETTING.match(field.text):
                state.mark_unclear(f"php -d {field.text}", "a setting of PHP may load or write a file")
    if language is _RUBY:
        for field in parsed.values("-C", "-X"):
            state.touch(field, "look")
            state.mark_unclear(f"ruby -C {field.text}", "it runs in another directory")
        for field in parsed.values("-r"):
            if field.text in _RUBY_COMMANDS:
                state.mark_unclear(f"ruby -r{field.text}", "it changes files that are named later")


def _examine_input(name: str, language: Interpreter, state: ShellState, stdin: StreamContent) -> None:
    if stdin.text is None:
        state.mark_unclear(f"{name} of its input", f"what {name} is given to run is not known")
    else:
        _examine_code_field(Field(stdin.text), state, backticks_run=language.backticks_run)


def _examine_code_field(field: Field, state: ShellState, *, backticks_run: bool) -> None:
    if has_hole(field.text):
        state.mark_unclear(field.text, "the code that is run is not known")
    else:
        examine_code(field.text, state, backticks_run=backticks_run)
