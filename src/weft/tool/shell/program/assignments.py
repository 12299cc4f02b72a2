"""Judge assignments to variables that change what programs do."""

import re
from typing import Final

from weft.tool.shell.arguments import Field
from weft.tool.shell.program.builtins import runs_when_evaluated
from weft.tool.shell.program.effects import Inner, InnerScript
from weft.tool.shell.program.git import examine_repository
from weft.tool.shell.state import ShellState
from weft.tool.shell.variables import NUMERIC_VARIABLES

# Variables that change which programs run, what they read at start, or where they write additional files. Setting one
# is unclear.
_DANGEROUS_VARIABLES: Final = re.compile(
    r"PATH|IFS|ENV|BASH\w*|SHELLOPTS|CDPATH|GLOBIGNORE|EXECIGNORE|FUNCNEST|POSIXLY_CORRECT|HOME|PWD|OLDPWD|DIRSTACK|PS[0-4]"
    r"|PROMPT_COMMAND|HIST\w+|COMP_\w+|READLINE_\w+|MAILPATH|LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|NLSPATH|HOSTALIASES|MALLOC_\w+|GLIBC_TUNABLES"
    r"|PYTHON(?:STARTUP|HOME|BREAKPOINT|INSPECT|USERBASE|PYCACHEPREFIX|EXECUTABLE|PLATLIBDIR|CASEOK|DUMPREFS\w*|WARNINGS|PERFSUPPORT)"
    r"|PERL5?(?:OPT|DB|_\w+)|PERLIO\w*|RUBYOPT|LUA_INIT\w*|PHPRC|PHP_INI_SCAN_DIR|_?JAVA_(?:TOOL_)?OPTIONS|JDK_JAVA_OPTIONS|MAVEN_OPTS"
    r"|ACK(?:RC|_OPTIONS|_PAGER\w*)|JQ_LIBRARY_PATH|PIP_\w+|GOENV|GOROOT|GOTOOLDIR|CARGO_HOME|TF_(?:LOG_PATH|CLI_\w+|DATA_DIR)"
    r"|MAKEFLAGS|MAKEFILES|GNUMAKEFLAGS|GIT_\w+|LESS\w*|MORE|MAN(?:OPT|ROFF\w*|_\w+)|GROFF\w*|TROFF\w*|TAR_OPTIONS|TAPE|ZIPOPT|UNZIP\w*|ZIPINFO\w*"
    r"|GZIP|BZIP\w*|XZ_\w+|LZ\w*|ZSTD_\w+|GREP_OPTIONS|(?:npm|NPM)_(?:config|CONFIG)_\w+|RIPGREP_CONFIG_PATH|BAT_(?!PAGER|THEME|STYLE)\w+"
    r"|FZF_\w+|MAGIC|TZDIR|ZDOTDIR|FPATH|fpath|NODE_(?:EXTRA_CA_CERTS|REPL_\w+|V8_COVERAGE|REDIRECT_WARNINGS|COMPILE_CACHE|PENDING_\w+)"
    r"|DOCKER_(?:HOST|CONFIG|CONTEXT)|KUBECONFIG|OPENSSL_\w+|SSL_CERT_\w+|SSLKEYLOGFILE|RANDFILE|CURL_HOME|WGETRC|NETRC|GOFLAGS|GODEBUG|TERM(?:INFO\w*|CAP|PATH)"
    r"|INPUTRC|XDG_(?:CONFIG|DATA|RUNTIME)_\w+|GNUPGHOME|GPG_\w+|PSQLRC|PG(?:SERVICEFILE|PASSFILE|SYSCONFDIR)|SQLITE_\w+|MYSQL_\w+"
    r"|R_(?:PROFILE|ENVIRON|HOME|LIBS)\w*|DOTNET_STARTUP_HOOKS|CORECLR_\w+|YARN_(?:YARN_PATH|RC_FILENAME|PLUGINS)|BUN_INSPECT_PRELOAD"
    r"|AWS_(?:CONFIG_FILE|SHARED_CREDENTIALS_FILE)|HELM_PLUGINS|SIMPLE_BACKUP_SUFFIX|PARALLEL\w*|RSYNC_(?:CONNECT_PROG|SHELL|PARTIAL_DIR)|PSQL_HISTORY|COREUTILS_\w+|EXINIT|VIM\w*|NVIM\w*|TMUX\w*|SYSTEMD_(?!PAGER)\w+|GTK_\w+|QT_\w+|GIO_\w+|STRACE_\w+|GCC_\w+|COMPILER_PATH|LIBRARY_PATH"
)
# Variables of git that only carry information, or that are judged by the program or path they name.
_HARMLESS_GIT_VARIABLES: Final = re.compile(
    r"GIT_(?:(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)|TERMINAL_PROMPT|MERGE_AUTOEDIT|OPTIONAL_LOCKS|NO_REPLACE_OBJECTS"
    r"|LITERAL_PATHSPECS|GLOB_PATHSPECS|ICASE_PATHSPECS|ADVICE|PAGER_IN_USE|DIR|WORK_TREE|INDEX_FILE|CEILING_DIRECTORIES)"
)
_COMMAND_VARIABLES: Final = re.compile(
    r"(?:GIT_)?(?:PAGER|EDITOR|SSH_COMMAND|SSH|ASKPASS|EXTERNAL_DIFF|SEQUENCE_EDITOR|PROXY_COMMAND)|VISUAL|FCEDIT|MANPAGER|BROWSER"
    r"|\w+_RSH|\w+_RUNNER|\w+_LINKER|\w+_WRAPPER|RUSTC|RUSTDOC|MAKE|SUDO_ASKPASS|SSH_ASKPASS|GH_(?:PAGER|EDITOR|BROWSER)|GLAB_(?:PAGER|EDITOR)|AWS_PAGER|SYSTEMD_EDITOR|SVN_EDITOR|HGEDITOR|KUBE_EDITOR|KUBECTL_EXTERNAL_DIFF|PSQL_(?:PAGER|EDITOR)\w*|DELTA_PAGER|BAT_PAGER|SYSTEMD_PAGER|CC|CXX|LD|AR|SHELL"
)
_PATH_VARIABLES: Final = re.compile(
    r"PYTHONPATH|PERL5LIB|RUBYLIB|NODE_PATH|GOPATH|CLASSPATH|GIT_DIR|GIT_WORK_TREE|GIT_INDEX_FILE|MANPATH|TMPDIR|TZ|XDG_CACHE_HOME|XDG_STATE_HOME"
)

# Options in `NODE_OPTIONS` that neither run nor write anything, and their values.
_HARMLESS_NODE_OPTION: Final = re.compile(
    r"[\w.:]+|--(?:max[-_][\w-]+|no-[\w-]+|enable-source-maps|experimental-(?!loader|default-type|sea|config)[\w-]+|openssl-legacy-provider"
    r"|trace-(?:warnings|deprecation|uncaught|exit|sync-io)|unhandled-rejections|dns-result-order|stack-size|stack-trace-limit|conditions"
    r"|preserve-symlinks[\w-]*|pending-deprecation|throw-deprecation|inspect[\w-]*|disable-warning|expose-gc)(?:=[\w.:,-]*)?"
)


def judge_assignment(name: str, value: str, state: ShellState) -> list[Inner]:
    """Note the effect of an assignment. If the variable names a program, return it to be judged as a script."""
    if runs_when_evaluated(value):
        state.mark_unclear(f"{name}={value}", "used as a number, it would run a command")
    name = name.partition("[")[0]
    if name in NUMERIC_VARIABLES:
        state.mark_unclear(f"{name}={value}", f"{name} belongs to the shell")
    elif _COMMAND_VARIABLES.fullmatch(name):
        return [InnerScript(text=value)] if value else []
    elif _DANGEROUS_VARIABLES.fullmatch(name) and not _HARMLESS_GIT_VARIABLES.fullmatch(name):
        state.mark_unclear(f"{name}={value}", f"{name} changes what programs do, or which are run")
    elif name == "NODE_OPTIONS":
        if not all(map(_HARMLESS_NODE_OPTION.fullmatch, value.split())):
            state.mark_unclear(f"{name}={value}", "it may make node run or write something")
    elif _PATH_VARIABLES.fullmatch(name):
        if name == "GIT_DIR":
            examine_repository(value, state)
        for path in value.split(":"):
            state.touch(Field(path), "write" if name in ("GIT_WORK_TREE", "GIT_INDEX_FILE") else "look")
    return []
