"""Variables that change what programs do: some name a program, some a place, some must not be touched unasked."""

import re
from typing import Final

from weft.tool.shell.field import Field, has_hole
from weft.tool.shell.program.builtins import runs_as_name
from weft.tool.shell.program.git import look_at_repository
from weft.tool.shell.program.inner import Inner, Script
from weft.tool.shell.scene import Scene
from weft.tool.shell.variables import NUMBERS

# They change which programs run, what these read before they begin, or where they write what they were not asked for.
_DANGEROUS: Final = re.compile(
    r"PATH|IFS|ENV|BASH\w*|SHELLOPTS|CDPATH|GLOBIGNORE|EXECIGNORE|FUNCNEST|POSIXLY_CORRECT|HOME|PWD|OLDPWD|DIRSTACK|PS[0-4]"
    r"|PROMPT_COMMAND|HIST\w+|COMP_\w+|READLINE_\w+|MAILPATH|LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|NLSPATH|HOSTALIASES|MALLOC_\w+|GLIBC_TUNABLES"
    r"|PYTHON(?:STARTUP|HOME|BREAKPOINT|INSPECT|USERBASE|PYCACHEPREFIX|EXECUTABLE|PLATLIBDIR|CASEOK|DUMPREFS\w*|WARNINGS|PERFSUPPORT)"
    r"|PERL5?(?:OPT|DB|_\w+)|PERLIO\w*|RUBYOPT|LUA_INIT\w*|PHPRC|PHP_INI_SCAN_DIR|_?JAVA_(?:TOOL_)?OPTIONS|JDK_JAVA_OPTIONS|MAVEN_OPTS"
    r"|MAKEFLAGS|MAKEFILES|GNUMAKEFLAGS|GIT_\w+|LESS\w*|MORE|MAN(?:OPT|ROFF\w*|_\w+)|GROFF\w*|TROFF\w*|TAR_OPTIONS|TAPE|ZIPOPT|UNZIP\w*|ZIPINFO\w*"
    r"|GZIP|BZIP\w*|XZ_\w+|LZ\w*|ZSTD_\w+|GREP_OPTIONS|(?:npm|NPM)_(?:config|CONFIG)_\w+|RIPGREP_CONFIG_PATH|BAT_(?!PAGER|THEME|STYLE)\w+"
    r"|FZF_\w+|MAGIC|TZDIR|ZDOTDIR|FPATH|fpath|NODE_(?:EXTRA_CA_CERTS|REPL_\w+|V8_COVERAGE|REDIRECT_WARNINGS|COMPILE_CACHE|PENDING_\w+)"
    r"|DOCKER_(?:HOST|CONFIG|CONTEXT)|KUBECONFIG|OPENSSL_\w+|SSL_CERT_\w+|SSLKEYLOGFILE|RANDFILE|CURL_HOME|WGETRC|NETRC|GOFLAGS|GODEBUG|TERM(?:INFO\w*|CAP|PATH)"
    r"|INPUTRC|XDG_(?:CONFIG|DATA|RUNTIME)_\w+|GNUPGHOME|GPG_\w+|PSQLRC|PG(?:SERVICEFILE|PASSFILE|SYSCONFDIR)|SQLITE_\w+|MYSQL_\w+"
    r"|COREUTILS_\w+|EXINIT|VIM\w*|NVIM\w*|TMUX\w*|SYSTEMD_(?!PAGER)\w+|GTK_\w+|QT_\w+|GIO_\w+|STRACE_\w+|GCC_\w+|COMPILER_PATH|LIBRARY_PATH"
)
# Of git's, those that are only told, or that are judged as the program or the place that they name.
_GIT: Final = re.compile(
    r"GIT_(?:(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)|TERMINAL_PROMPT|MERGE_AUTOEDIT|OPTIONAL_LOCKS|NO_REPLACE_OBJECTS"
    r"|LITERAL_PATHSPECS|GLOB_PATHSPECS|ICASE_PATHSPECS|ADVICE|PAGER_IN_USE|DIR|WORK_TREE|INDEX_FILE|CEILING_DIRECTORIES)"
)
_COMMANDS: Final = re.compile(
    r"(?:GIT_)?(?:PAGER|EDITOR|SSH_COMMAND|SSH|ASKPASS|EXTERNAL_DIFF|SEQUENCE_EDITOR|PROXY_COMMAND)|VISUAL|FCEDIT|MANPAGER|BROWSER"
    r"|\w+_RSH|\w+_RUNNER|\w+_LINKER|\w+_WRAPPER|RUSTC|RUSTDOC|MAKE|SUDO_ASKPASS|SSH_ASKPASS|DELTA_PAGER|BAT_PAGER|SYSTEMD_PAGER|CC|CXX|LD|AR|SHELL"
)
_PLACES: Final = re.compile(
    r"PYTHONPATH|PERL5LIB|RUBYLIB|NODE_PATH|GOPATH|CLASSPATH|GIT_DIR|GIT_WORK_TREE|GIT_INDEX_FILE|MANPATH|TMPDIR|TZ|XDG_CACHE_HOME|XDG_STATE_HOME"
)


def assign(name: str, value: str, scene: Scene) -> list[Inner]:
    """Note what a variable is set to. Where it names a program, that is judged as one."""
    if runs_as_name(value):
        scene.unclear(f"{name}={value}", "where it is taken for a number, what is in it is run")
    name = name.partition("[")[0]
    if name in NUMBERS:
        scene.unclear(f"{name}={value}", f"{name} is the shell's own")
    elif _COMMANDS.fullmatch(name):
        return [Script(text=value)] if value else []
    elif _DANGEROUS.fullmatch(name) and not _GIT.fullmatch(name):
        scene.unclear(f"{name}={value}", f"{name} changes what programs do, or which are run")
    elif name == "NODE_OPTIONS":
        if has_hole(value) or re.search(
            r"(?:^|\s)(?:-r|--require|--import|--(?:experimental-)?loader)\b", value
        ):
            scene.unclear(f"{name}={value}", "it has node run something first")
    elif _PLACES.fullmatch(name):
        if name == "GIT_DIR":
            look_at_repository(value, scene)
        for path in value.split(":"):
            scene.touch(Field(path), "look")
    return []
