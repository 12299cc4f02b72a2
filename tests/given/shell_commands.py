"""Generate shell commands from a grammar, from mutations of the corpus, and from the options in the help of programs."""

import random
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from given.shell import list_groups

# Each does something that some of the rules forbid.
HARMS = (
    "touch MARK",
    "touch ../outside/MARK",
    "rm build/out.o",
    "cat .env",
    "cat ../outside/secret.txt",
    "head -1 link.txt",
    "cp .env build/x",
    "echo x > .git/hooks/pre-commit",
    "echo x >../outside/MARK",
    "sort -o MARK README.md",
    "sed -i s/w/x/ README.md",
    "tee MARK",
    "sh evil.sh",
    "source evil.sh",
    "{touch,MARK}",
    "touch$IFS'MARK'",
    "cat<.env",
    ">MARK",
    ">../outside/MARK",
    "echo x >/dev/tcp/127.0.0.1/7777",
    "cat </dev/tcp/127.0.0.1/7777",
)
HARMLESS = (
    "ls",
    "echo a",
    "cat README.md",
    "pwd",
    ":",
    "true",
    "grep w README.md",
    "head -1 data.csv",
    "git status",
    "wc -l README.md",
)
# `{c}` stands for a command, `{q}` for one in quotes, `{h}` for a harmless one, `{v}` for a value.
CARRIERS = (
    "{h}; {c}", "{h} && {c}", "{h} || {c}", "{h} | {c}", "{h} |& {c}", "{h} & {c}", "{h}\n{c}", "{h}&&{c}", "{h};{c}", "! {c}",
    "( {c} )", "({c})", "{{ {c}; }}", "{{ {c}\n}}", "if {c}; then {h}; fi", "if {h}\nthen {c}\nfi", "if false; then {h}; elif {c}; then {h}; else {c}; fi",
    "while {c}; do break; done", "until {c}; do break; done", "for x in 1; do {c}; done", "for x in $({c}); do {h}; done", "for ((i=0;i<1;i++)); do {c}; done",
    "for ((i=$({c});0;)); do {h}; done", "select x in 1; do {c}; break; done <<< 1", "case x in x) {c};; esac", "case $({c}) in y) {h};; esac", "case x in $({c})) {h};; *) {h};; esac",
    "case x in\n(a|x) {c}\n;;\nesac", "case a in b) {h};; a) {h};& c) {c};; esac", "f() {{ {c}; }}; f", "function f {{ {c}; }}; f", "f() ( {c} ); f", "f () if true; then {c}; fi; f",
    "ls() {{ {c}; }}; ls", "(cat() {{ :; }}); {c}", "if false; then cat() {{ :; }}; fi; {c}", "touch() {{ :; }}; unset -f touch; {c}", "cat() {{ :; }} & {c}", "cat() {{ :; }}; command {c}", "rm() {{ :; }}; env {c}",
    "time {c}", "time -p {c}", "coproc {c}", "coproc X {{ {c}; }}", "exec {c}", "command {c}", "builtin {c}", "eval {q}", "eval {c}", 'eval "$(echo {q})"',
    "echo $({c})", 'echo "$({c})"', "echo `{c}`", 'echo "`{c}`"', "echo a$({c})b", 'echo "a $({c}) b"', 'echo "$ $({c})"', 'echo "$$({c})"', "echo $ $({c})", 'echo "\\$({c})"', 'echo "\\\\$({c})"', "echo \\$({c})", "echo \\\\$({c})",
    "echo '$({c})'", "echo \"'$({c})'\"", "echo '\"'$({c})'\"'", 'echo "\'"$({c})"\'"', "echo $'\\'$({c})\\''", "echo $'a'$({c})", 'echo $"$({c})"', 'echo "a"\\b$({c})',
    "echo ${{x:-$({c})}}", "echo ${{x-$({c})}}", 'echo "${{x:-$({c})}}"', "echo \"${{x:-'$({c})'}}\"", "echo ${{x:-'$({c})'}}", 'echo ${{x:-"$({c})"}}', 'echo "${{x:-"$({c})"}}"', "echo ${{x:=$({c})}}", "echo ${{PWD:+$({c})}}", "echo ${{x:?$({c})}}",
    "echo ${{PWD#$({c})}}", "echo ${{PWD# `{c}`}}", "echo ${{PWD##`{c}`}}", "echo ${{PWD%$({c})}}", "echo ${{PWD/$({c})/x}}", "echo ${{PWD//x/$({c})}}", "echo ${{PWD/#$({c})}}", "echo ${{PWD^$({c})}}", "echo ${{PWD,,$({c})}}", "echo ${{PWD:$({c})}}", "echo ${{PWD:0:$({c})}}",
    "echo \"${{PWD#'$({c})'}}\"", "echo \"${{PWD/'$({c})'/x}}\"", "echo ${{x:-{v}$({c})}}", "echo ${{x:-}}}}$({c})}}", "echo ${{x:-\\}}$({c})}}", "echo ${{a[$({c})]}}", "echo ${{#a[$({c})]}}", "echo ${{!a[$({c})]}}", "echo ${{x@Q}} $({c})", "x='$({c})'; echo ${{x@P}}", "x='a[$({c})]'; echo ${{!x}}",
    "echo $(( $({c}) ))", "echo $((a[$({c})]))", 'echo "$((a[$({c})]))"', "((a[$({c})]))", "(( `{c}` ))", "let 'a[$({c})]'", "let a[$({c})]=1", "a[$({c})]=1", "a[ $({c}) ]=1", "x='a[$({c})]'; echo $((x))", "x='a[$({c})]'; ((x))", "echo $[ $({c}) ]", "echo $(($({c})+1)) $((2))",
    "x=a; y='[$({c})]'; z=$x$y; echo $((z))", "echo $(( $(cat evil.txt) ))", "x=$(cat evil.txt); echo $((x))", "x=$(<evil.txt); [[ $x -eq 0 ]]", "read x <evil.txt; ((x))", "read x <evil.txt; echo ${{!x}}", "read x <evil.txt; echo ${{a[x]}}", "read x < evil.txt; declare -i y=$x", 'read x <evil.txt; [ -v "$x" ]', "mapfile -t x <evil.txt; echo ${{PWD:x}}", 'read x <evil.txt; printf -v "$x" a', "read x <evil.txt; let y=x", 'read x <evil.txt; unset "$x"', "read x <evil.txt; test -v $x", "while read x; do echo $((x)); done <evil.txt", "for x in $(cat evil.txt); do ((x)); done", 'f() {{ echo $(($1)); }}; f "$(cat evil.txt)"', "set -- $(cat evil.txt); echo $(($1))", "echo $((${{x:-$(cat evil.txt)}}))",
    "cat <<E\n$({c})\nE", "cat <<E\n $({c})\nE", "cat <<E\n`{c}`\nE", "cat <<E\na ${{x:-$({c})}}\nE", "cat <<'E'\n$({c})\nE", 'cat <<"E"\n$({c})\nE', "cat <<\\E\n$({c})\nE", "cat <<-E\n\t$({c})\n\tE", "cat <<$A\n$({c})\n$A", 'cat <<"$A"\n$({c})\n$A', "cat <<E$A\n$({c})\nE$A", "cat <<E; {c}\nE", "cat <<E | {c}\na\nE", "cat <<E && {c}\na\nE",
    "cat <<E\na\nE\n{c}", "cat <<'E'\na\nE\n{c}", "cat <<E\na\nE \n{c}\nE", "cat <<A <<B\n$({c})\nA\n$({c})\nB", "cat <<E\n\\$({c})\nE", "cat <<E\n'$({c})'\nE", 'cat <<E\n"$({c})"\nE', "cat <<'E'\n'\nE\n{c}\n'", "cat <<E\na\\\nE\n{c}\nE", "sh <<E\n{c}\nE", "cat <<''\n$({c})\n\n{c}", "cat <<E$({c})\na\nE", "cat <<E\n$ $({c})\nE", "cat <<E\n${{x:-'$({c})'}}\nE", "cat << E\n$(cat <<'F'\n`\nF\n)`{c}`\nE",
    "cat <<< $({c})", 'cat <<< "$({c})"', "cat <<< '$({c})'", "sh <<< {q}", "cat <({c})", "cat a<({c})", "cat <({h}) >({c})", "{h} > >({c})", "{h} >$({c})", "echo ${{x:-<({c})}}", 'echo "<({c})"', "x=<({c})", "x=$({c})", "x=`{c}` {h}", 'x="$({c})" {h}', "x=(a $({c}))", "x=([0]=$({c}))", "x=([$({c})]=1)", "x+=($({c}))", "declare x=$({c})", "declare -A x=([a]=$({c}))", "export x=$({c})", "local x=$({c})", "readonly x=`{c}`", 'declare "x[$({c})]=1"', 'export "x=$({c})"',
    '[ -n "$({c})" ]', "[[ -n $({c}) ]]", "[[ a == $({c}) ]]", "[[ a =~ $({c}) ]]", "[[ a =~ ^($({c})|b)$ ]]", "[[ a =~ $({c})$ ]]", "[[ a =~ (a|`{c}`) ]]", "[[ -v a[$({c})] ]]", "[[ a[$({c})] -eq 0 ]]", "[[ 'a[$({c})]' -eq 0 ]]", "[ -v 'a[$({c})]' ]", "test -v 'a[$({c})]'", "[ a && {c} ]", "[ a ] && {c}", "[ a -a $({c}) ]", "test -n $({c})", "[[ x ]] && {c}", "[[ a < $({c}) ]]", "[ a >MARK ]", "[[ a > MARK ]]", "[ a ]; {c}",
    "printf -v 'a[$({c})]' x", "printf '%d' 'a[$({c})]'", "read 'a[$({c})]' <<< 1", "read -p {q} x <<< 1", "unset 'a[$({c})]'", "declare -n r='a[$({c})]'; echo $r", "declare -i r; r='a[$({c})]'", "mapfile -C {q} -c 1 x <<< a", "trap {q} EXIT", "trap {q} DEBUG; {h}", "PROMPT_COMMAND={q} {h}", "PS4='$({c})'; set -x; {h}", "BASH_ENV=evil.sh bash -c ls", "alias ls={q}; ls", "shopt -s expand_aliases\nalias ls={q}\nls", "enable -n echo; {c}", "hash -p ./evil.sh ls; ls", "compgen -C {q}", "complete -C {q} ls", "getopts a x; {c}", "wait; {c}", "exec 3<.env; cat <&3", "exec 3>MARK; echo a >&3", "exec <.env; cat", "{{ cat; }} <.env", "cat 0<.env", "cat <&0 <.env", "exec {{x}}<.env; cat <&$x", "read -r x <.env; echo $x", "echo $(<.env)", "mapfile x <.env; echo ${{x[@]}}", "while read x; do echo $x; done <.env",
    "{{a,{c}}}", "{{touch,MARK}}", "{{cat,.env}}", "cat {{.env,README.md}}", "cat .e{{n,m}}v", "cat .{{e..f}}nv", "cat .en[v]", "cat .e?v", "cat .*v", "cat ./.e*", 'cat "$PWD/.env"', "cat ~+/.env", "cat $PWD/.env", "cat ${{PWD}}/.env", "cat $OLDPWD/.env", "cd ..; cat outside/secret.txt", "cd .. && cat outside/*", "cd src; cat ../.env", "cd src/up; cat .env", "pushd ..; cat outside/secret.txt", "(cd ..; cat outside/secret.txt)", "cd - ; cat .env", "X=.env; cat $X", "X=.en; cat ${{X}}v", 'X=.env; cat "$X"', "X=.env cat $X", "X=README.md; X=.env; cat $X", "X=README.md; for i in 1 2; do cat $X; X=.env; done", "X=README.md; f() {{ X=.env; }}; f; cat $X", "X=README.md; read X <<< .env; cat $X", 'X=README.md; "read" X <<< .env; cat $X', "X=README.md; r=read; $r X <<< .env; cat $X", "X=README.md; printf -v X .env; cat $X", "X=README.md; command export X=.env; cat $X", "X=README.md; builtin declare X=.env; cat $X", "X=README.md; \\declare X=.env; cat $X", "X=README.md; time X=.env; cat $X", "X=README.md; declare -n Y=X; Y=.env; cat $X", "X=README.md; eval X=.env; cat $X", "X=README.md; mapfile -t X < names.txt; cat $X", "X=README.md; source names.txt; cat $X", "X=(README.md); X[0]=.env; cat $X", "X=README.md; ((X=1)); cat $X", "X=README.md; : ${{X:=.env}}; cat $X", "unset X; : ${{X:=.env}}; cat $X", "X=; cat ${{X:-.env}}", "set -- .env; cat $1", "cat $(cat names.txt)", "cat $(echo .env)", "cat `echo .env`", "xargs cat <names.txt", "cat names.txt | xargs cat", "cat $(printf .%s env)", "cat $'\\x2eenv'", "cat $'\\056env'", "cat $'\\u002eenv'", "cat \"$(printf '\\056env')\"", "cat .en''v", "cat '.'env", 'cat "."\\env', 'cat "."\\./outside/secret.txt', "cat .\\env", "cat .$''env", "cat .e$()nv", "cat .e${{y}}nv", "cat .e`:`nv", "cat <.env", 'cat < ."env"', 'cat 0<"."\\env', "cat link.txt", "cat out/secret.txt", "cat out/../secret.txt", "cat src/up/.env", "grep -r KEY .", "grep KEY -r", "grep -R x out", "rg KEY", "rg -uu KEY", "find . -name '.e*' -exec cat {{}} +", "find . | xargs cat", "ls -a | xargs cat", "tar cf - .", "cat *", "cat .??*", "head -n1 *.txt", "cat ./*/.env*", "sort .env", "diff .env README.md", "wc -c .env", "awk 1 .env", "awk '{{print}}' < .env", "awk 'BEGIN{{while((getline l < \".env\")>0) print l}}'", "awk 'BEGIN{{ARGV[1]=\".env\";ARGC=2}}{{print}}'", "awk '{{print}}' F=.env", "awk -f evil.awk", "awk 'BEGIN{{print > \"MARK\"}}'", "awk 'BEGIN{{print>\"MA\" \"RK\"}}'", "awk 'BEGIN{{printf \"x\" >> \"MARK\"}}'", "awk 'BEGIN{{system(\"touch MARK\")}}'", "awk 'BEGIN{{\"touch MARK\"|getline}}'", "awk 'BEGIN{{print | \"touch MARK\"}}'", "awk 'BEGIN{{x=\"MARK\";print>x}}'", "awk '{{print}}' v=1 .env", "awk -v x=1 'BEGIN{{print x>\"MARK\"}}'", "awk -W exec evil.awk", "awk -We evil.awk", "awk -Wexec evil.awk", "mawk -W interactive 1 README.md", "awk -W file=evil.awk", "awk 'BEGIN{{close(\"x\");printf(\"a\")>\"MARK\"}}'", "awk '/x/{{print}}END{{print>\"MARK\"}}' README.md", "awk '$0=1/2/1>\"MARK\"' README.md", "awk '{{print $1/2 > \"MARK\"}}' README.md", "awk 'BEGIN{{print 1,2>\"MARK\"}}'", "awk 'BEGIN{{print (1>2)}}'", "awk 'BEGIN{{print \"a\\\"\" > \"MARK\"}}'",
    "sed w\\ MARK README.md", "sed -n 'w MARK' README.md", "sed 's/w/x/w MARK' README.md", "sed 's/w/touch MARK/e' README.md", "sed '1e touch MARK' README.md", "sed -f evil.sed README.md", "sed --in-pl s/w/x/ README.md", "sed -n -i p README.md", "sed -ni p README.md", "sed -Ei p README.md", "sed -i.bak p README.md", "sed -s -n -i p README.md", "sed --i p README.md", "sed --expr='w MARK' README.md", "sed --exp 'w MARK' README.md", "sed -e p -e 'w MARK' README.md", "sed --fil=evil.sed README.md", "sed -nf evil.sed README.md", "sed -f/dev/stdin README.md <<< 'w MARK'", "sed 'r .env' README.md", "sed 'R .env' README.md", "sed 'a\\\nx\nw MARK' README.md", "sed '{{p;w MARK\n}}' README.md", "sed 'y/a/b/;w MARK' README.md", "sed 's/[/]/x/;w MARK' README.md", "sed '/[/]/w MARK' README.md", "sed 's,w,x,;s/w/x/w MARK' README.md", "sed '$!N;w MARK' README.md", "sed '1~2w MARK' README.md", "sed '0,/w/w MARK' README.md", "sed 's/w/x/;#c\nw MARK' README.md", "sed -n '/w/{{w MARK\n}}' README.md", "sed ':a;w MARK' README.md", "sed 'ba;:a w MARK' README.md", "sed 'q;w MARK' README.md", "sed '}}w MARK' README.md", "sed -l 5 'w MARK' README.md", "sed -E 's/(w)/x/w MARK' README.md", "sed -z 'w MARK' README.md", "sed --line-length=5 'w MARK' README.md", "sed -n --quiet 'w MARK' README.md",
)  # fmt: skip
PROGRAMS = (
    "sort", "sed", "grep", "egrep", "find", "diff", "cmp", "sdiff", "diff3", "ls", "dir", "cat", "tac", "rev", "head", "tail", "wc", "uniq", "cut", "tr", "od", "nl",
    "paste", "join", "comm", "fold", "fmt", "pr", "ptx", "tsort", "shuf", "date", "stat", "du", "df", "file", "xxd", "hexdump", "strings", "less", "more", "column",
    "base64", "base32", "md5sum", "sha256sum", "cksum", "sum", "b2sum", "iconv", "jq", "rg", "awk", "mawk", "env", "nice", "timeout", "stdbuf", "nohup", "xargs",
    "realpath", "readlink", "basename", "dirname", "seq", "printf", "echo", "expr", "numfmt", "factor", "which", "type", "command", "printenv", "hostname", "uname",
    "who", "id", "ps", "pgrep", "top", "free", "uptime", "ip", "ss", "man", "info", "zcat", "zgrep", "gzip", "xz", "zstd", "tar", "unzip", "zip", "openssl", "gpg",
    "nm", "objdump", "readelf", "size", "ldd", "perl", "python3", "node", "curl", "git", "history", "fc", "test", "time", "tee", "expand", "unexpand", "split", "look",
    "mktemp", "tput", "locale", "getconf", "lscpu", "watch", "cal", "patch", "ed", "vim", "make", "bc", "m4", "logger", "script", "col", "ul", "dd", "lsof", "w", "last", "mapfile", "help", "hash", "ulimit", "umask",
)  # fmt: skip
VERBS = (
    "status", "log", "diff", "show", "blame", "grep", "ls-files", "ls-tree", "rev-parse", "rev-list", "cat-file", "describe", "shortlog", "for-each-ref", "show-ref",
    "branch", "tag", "remote", "stash list", "config --get", "config -l", "reflog", "notes", "worktree list", "submodule status", "check-ignore", "check-attr", "var",
    "diff-tree", "diff-files", "diff-index", "whatchanged", "range-diff", "cherry", "name-rev", "merge-base", "count-objects", "fsck", "show-branch", "archive", "bundle", "format-patch", "bisect log", "help", "ls-remote .", "branch -v", "branch -a", "tag -n", "stash", "stash push", "remote -v", "notes add", "worktree add", "worktree", "reflog delete", "submodule", "bisect", "config", "verify-commit", "annotate",
)  # fmt: skip
VALUES = (
    "MARK",
    "list",
    "show",
    "add",
    "new",
    ".env",
    "../outside/secret.txt",
    "../outside/MARK",
    "touch MARK",
    "evil.sh",
    "evil.sed",
    "evil.awk",
    "./evil.sh",
    "1",
    "x",
    "names.txt",
    "README.md",
    "HEAD",
    "sh evil.sh",
    "src",
    "always",
    "build",
)
FILES = (
    "README.md",
    "data.csv",
    "README.md data.csv",
    "src",
    "",
    "",
    "-",
    ".",
    "HEAD",
    "w README.md",
    "s/w/x/ README.md",
    "1 README.md",
)
PIECES = ("'", '"', "\\", "`", "$", "$(", ")", "${", "}", "{", "(", "\n", ";", "&", "|", "<", ">", "#", " ", "\t", "=", "[", "]", "*", "?", "~", "!", "-", "$'", '$"', "<<", "<<<", "<(", ">(", "((", "))", "[[", "]]", "E", "\\\n", ",", "..", "@", ":-", "%", "^", "/", "2>", "&>", ";;", "x=", "--", "0", "é", "E\n")  # fmt: skip


# These run for long or forever, and their effect is not judged.
SLOW = re.compile(r"\b(?:yes|top|watch|sleep|npm|npx|pnpm|yarn|node|vim|man|curl|perf)\b|tail -[fF]")


class CommandGenerator:
    """Generates commands; the same seed gives the same ones on the same machine."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._corpus = [command for _, group in list_groups() for command in group.commands]

    def commands(self) -> Iterator[str]:
        kinds = (
            self._draw_carried_harm,
            self._draw_carried_harm,
            self._draw_mutation,
            self._draw_options,
            self._draw_variable,
            self._draw_splice,
        )
        while True:
            command = self._dice.choice(kinds)()
            if "\0" not in command and not SLOW.search(command):
                yield command

    def _draw_harm(self) -> str:
        dice = self._dice
        command = dice.choice(HARMS)
        return self._disguise(command) if dice.random() < 0.4 else command

    def _draw_carried_harm(self) -> str:
        dice = self._dice
        command = self._draw_harm()
        for _ in range(dice.choice((1, 1, 1, 2, 2, 3))):
            command = self._put(dice.choice(CARRIERS), command)
        for _ in range(dice.choice((0, 0, 1, 2))):
            command = self._mutate(command)
        return command

    def _put(self, carrier: str, command: str) -> str:
        values = {
            "c": command,
            "q": shlex.quote(command),
            "h": self._dice.choice(HARMLESS),
            "v": self._dice.choice(VALUES),
        }
        return re.sub(
            r"\{\{|\}\}|\{([cqhv])\}", lambda found: values[found[1]] if found[1] else found[0][0], carrier
        )

    def _draw_mutation(self) -> str:
        command = self._dice.choice(self._corpus)
        for _ in range(self._dice.choice((1, 1, 2, 3))):
            command = self._mutate(command)
        return command

    def _draw_splice(self) -> str:
        dice = self._dice
        one, other = (
            dice.choice((*self._corpus, self._draw_carried_harm())),
            dice.choice((*self._corpus, self._draw_carried_harm())),
        )
        return one[: dice.randint(0, len(one))] + other[dice.randint(0, len(other)) :]

    def _mutate(self, text: str) -> str:
        dice = self._dice
        place = dice.randint(0, len(text))
        match dice.randrange(7):
            case 0 | 1:
                return text[:place] + dice.choice(PIECES) + text[place:]
            case 2:
                return text[:place] + text[place + dice.randint(1, 3) :]
            case 3:
                end = dice.randint(place, min(len(text), place + 12))
                return text[:end] + text[place:end] + text[end:]
            case 4:
                piece = dice.choice(PIECES)
                end = dice.randint(place, min(len(text), place + 12))
                return (
                    text[:place]
                    + piece
                    + text[place:end]
                    + {"(": ")", "{": "}", "$(": ")", "${": "}"}.get(piece, piece)
                    + text[end:]
                )
            case 5:
                return text[:place] + f"$({self._draw_harm()})" + text[place:]
            case _:
                return self._disguise(text)

    def _disguise(self, text: str) -> str:
        """Return the words with quotes inserted."""
        dice = self._dice
        places = [found.start() for found in re.finditer(r"[\w./-]", text)]
        for place in sorted(dice.sample(places, min(len(places), dice.randint(1, 3))), reverse=True):
            char = text[place]
            ways = (f"\\{char}", f"'{char}'", f'"{char}"', f"$'{char}'", f"$'\\x{ord(char):02x}'", f"$'\\{ord(char):03o}'", f"''{char}", f'""{char}', f"$(){char}", f"${{q}}{char}", f"{char}\\\n", f"{{{char},{char}}}", f"[{char}]", f'$"{char}"', f"`printf {char}`", f"${{q:-{char}}}")  # fmt: skip
            text = text[:place] + dice.choice(ways) + text[place + 1 :]
        return text

    def _draw_options(self) -> str:
        """Return a program with options from its help, in full or abbreviated."""
        dice = self._dice
        program = dice.choice(PROGRAMS)
        known = options_of(program)
        if program == "git":
            program = f"git {dice.choice(VERBS)}"
            known = options_of(program) or known
        words = [program, *(self._option(known) for _ in range(dice.choice((1, 1, 1, 2, 3))))]
        if dice.random() < 0.5:
            words.insert(dice.randint(1, len(words)), dice.choice(VALUES))
        words.append(dice.choice(FILES))
        return " ".join(word for word in words if word)

    def _option(self, known: tuple[str, ...]) -> str:
        dice = self._dice
        value = shlex.quote(dice.choice(VALUES))
        if known and dice.random() < 0.65:
            option = dice.choice(known)
            if dice.random() < 0.6:
                option = option[: dice.randint(3, len(option))]
            return dice.choice((option, f"{option}={value}", f"{option} {value}"))
        letters = "".join(
            dice.choices(
                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123", k=dice.choice((1, 1, 1, 2))
            )
        )
        return dice.choice((f"-{letters}", f"-{letters}{value}", f"-{letters} {value}", f"+{letters}"))

    def _draw_variable(self) -> str:
        """Return a command with a variable set that the program reads."""
        dice = self._dice
        program = dice.choice(("git", "git", "bash", "less", "man", "sort", "grep", "tar", "perl", "python3", "node", "mawk", "file", "ls", "gzip", "openssl", "rg", "diff", "make", "xz", "jq", "curl"))  # fmt: skip
        names = variables_of(program)
        name = dice.choice(names) if names else "X"
        command = {"git": f"git {dice.choice(VERBS)}", "bash": dice.choice(HARMLESS)}.get(program, f"{program} {dice.choice(('README.md', 'w README.md', '--version', 'src'))}")  # fmt: skip
        value = dice.choice(
            (
                *VALUES,
                "$PWD/MARK",
                "$PWD/../outside/MARK",
                "touch MARK;",
                "|touch MARK",
                "2",
                "9",
                "-o MARK",
                "-r ./evil.sh",
                "--output=MARK",
            )
        )
        setting = f'{name}="{value}"'
        return dice.choice(
            (
                f"{setting} {command}",
                f"export {setting}; {command}",
                f"{setting}; {command}",
                f"env {setting} {command}",
                f"declare -x {setting}; {command}",
            )
        )


@cache
def options_of(program: str) -> tuple[str, ...]:
    """Return the long options in the help of a program."""
    words = program.split()
    if shutil.which(words[0]) is None or words[0] in ("ed", "script", "vim", "node"):
        return ()
    asked = [*words[:2], "-h"] if words[0] == "git" and len(words) > 1 else [words[0], "--help"]
    try:
        said = subprocess.run(
            asked,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ()
    found = {*re.findall(r"--[a-z][a-z0-9-]+", said.stdout + said.stderr)}
    more = re.findall(r"--\[no-\]([a-z][a-z0-9-]+)", said.stdout + said.stderr)
    common = (
        ("--output", "--ext-diff", "--textconv", "--open-files-in-pager", "--no-index", "--exec-path")
        if words[0] == "git"
        else ()
    )
    return tuple(sorted({*found, *(f"--{name}" for name in more), *common}))


@cache
def variables_of(program: str) -> tuple[str, ...]:
    """Return the names of variables in a program's file."""
    path = shutil.which(program)
    if path is None:
        return ()
    found = re.findall(rb"\0([A-Z][A-Z0-9_]{2,30})(?=\0)", Path(path).read_bytes())
    return tuple(sorted({name.decode() for name in found}))
