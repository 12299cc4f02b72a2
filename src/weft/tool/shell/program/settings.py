"""Variables that change what programs do: some name a program, some a place, some must not be touched unasked."""

import re
from typing import Final

from weft.tool.shell.field import Field, has_hole
from weft.tool.shell.program.builtins import runs_as_name
from weft.tool.shell.program.inner import Inner, Script
from weft.tool.shell.scene import Scene

_DANGEROUS: Final = re.compile(
    r"PATH|IFS|ENV|BASH_ENV|SHELLOPTS|BASHOPTS|BASH_FUNC.*|BASH_LOADABLES_PATH|CDPATH|GLOBIGNORE|HOME|PS[0-4]|PROMPT_COMMAND"
    r"|LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|NLSPATH|HOSTALIASES|PYTHONSTARTUP|PYTHONHOME|PYTHONBREAKPOINT|PYTHONINSPECT"
    r"|PERL5OPT|PERL5DB|RUBYOPT|LUA_INIT\w*|PHPRC|PHP_INI_SCAN_DIR|_?JAVA_(?:TOOL_)?OPTIONS|JDK_JAVA_OPTIONS|MAVEN_OPTS"
    r"|MAKEFLAGS|MAKEFILES|GIT_CONFIG\w*|GIT_EXEC_PATH|GIT_TEMPLATE_DIR|GIT_ALLOW_PROTOCOL|LESSOPEN|LESSCLOSE|TAR_OPTIONS|RIPGREP_CONFIG_PATH|npm_config_\w+"
    r"|ZDOTDIR|FPATH|fpath|NODE_EXTRA_CA_CERTS|DOCKER_HOST|OPENSSL_CONF|GOFLAGS|TERMINFO\w*|INPUTRC|XDG_CONFIG_\w+"
)
_COMMANDS: Final = re.compile(
    r"(?:GIT_)?(?:PAGER|EDITOR|SSH_COMMAND|SSH|ASKPASS|EXTERNAL_DIFF|SEQUENCE_EDITOR|PROXY_COMMAND)|VISUAL|MANPAGER|BROWSER"
    r"|\w+_RSH|\w+_RUNNER|\w+_LINKER|\w+_WRAPPER|RUSTC|RUSTDOC|MAKE|SUDO_ASKPASS|SSH_ASKPASS|DELTA_PAGER|BAT_PAGER|SYSTEMD_PAGER|CC|CXX|LD|AR|SHELL"
)
_PLACES: Final = re.compile(
    r"PYTHONPATH|PERL5LIB|RUBYLIB|NODE_PATH|GOPATH|CLASSPATH|GIT_DIR|GIT_WORK_TREE|GIT_INDEX_FILE|MANPATH|TMPDIR"
)


def assign(name: str, value: str, scene: Scene) -> list[Inner]:
    """Note what a variable is set to. Where it names a program, that is judged as one."""
    if runs_as_name(value):
        scene.unclear(f"{name}={value}", "where it is taken for a number, what is in it is run")
    if _DANGEROUS.fullmatch(name):
        scene.unclear(f"{name}={value}", f"{name} changes what programs do, or which are run")
    elif name == "NODE_OPTIONS":
        if has_hole(value) or re.search(
            r"(?:^|\s)(?:-r|--require|--import|--(?:experimental-)?loader)\b", value
        ):
            scene.unclear(f"{name}={value}", "it has node run something first")
    elif _COMMANDS.fullmatch(name):
        return [Script(text=value)] if value else []
    elif _PLACES.fullmatch(name):
        for path in value.split(":"):
            scene.touch(Field(path), "look")
    return []
