"""Parse shell commands as bash does.

Every character must belong to something that was understood. Otherwise the text is refused, and the whole command
counts as unclear.
"""

import re
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from weft.tool.shell.arguments import split_names
from weft.tool.shell.lexer import HereDocument, Lexer, Node, UnparsableError

MAX_COMMANDS: Final = 3000

_BLANKS: Final = re.compile(r"[ \t]+")
_COMMENT: Final = re.compile(r"#[^\n]*")
_LEADING: Final = re.compile(r"[^ \t\n;&|<>()]+")
_RESERVED: Final = split_names(
    "if then else elif fi for while until do done case esac select function in { } ! [[ ]]"
)
# After these words, the shell reads a command, including assignments before it.
_BEFORE: Final = split_names("time coproc")
_DECLARING: Final = split_names("declare typeset local export readonly")
_REDIRECT: Final = re.compile(r"(?P<fd>[0-9]*)(?P<operator><<<|<<-|<<|<>|<&|>&|>>|>\||<|>)|(?P<both>&>>|&>)")
_NAMED_FD: Final = re.compile(r"\{[A-Za-z_]\w*\}[<>]", re.ASCII)
_ASSIGNED: Final = re.compile(r"[A-Za-z_]\w*(?=\+?=|\[)", re.ASCII)
_EQUALS: Final = re.compile(r"\+?=")
_DEFINED: Final = re.compile(r"[A-Za-z_][\w.:-]*(?=[ \t]*\([ \t]*\))", re.ASCII)
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.:-]*(?=[ \t\n({])", re.ASCII)
_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*(?=[ \t\n;])", re.ASCII)
_DELIMITER: Final = re.compile(
    r"""'(?P<single>[^'\n]+)'|"(?P<double>[^"\\$`\n]+)"|(?P<escape>\\?)(?P<plain>[\w.!+-]+)"""
)
_ENDS_WORD: Final = frozenset(("", *" \t\n;&|<>()"))
# A number, or a quoted text in which nothing is expanded.
_KEY: Final = re.compile(r"""\[(?:\w+|"[^"$`\\\n\[]*"|'[^'$`\\\n\[]*')\]=""")
_REGEX: Final = re.compile(r"[^ \t\n\\'\"$`()<>;&|]+")
_ENDS_TEST: Final = re.compile(r"\]\](?=[ \t\n;&|<>()]|$)")


def parse_script(text: str) -> Node:
    """Return the syntax tree of a script. Raise `UnparsableError` if a part cannot be read with certainty."""
    return _Grammar(text).script()


class _Grammar:
    def __init__(self, text: str) -> None:
        self.lexer = Lexer(text, self._inner)
        self._count = 0

    def script(self) -> Node:
        statements = self._statements(frozenset())
        lexer = self.lexer
        if lexer.place != len(lexer.text) or lexer.pending:
            raise UnparsableError("it is not shell syntax that we can read")
        return lexer.node("program", 0, statements)

    def _inner(self) -> list[Node]:
        return self._statements(frozenset())

    # --- between commands ---

    def _skip(self, *, lines: bool = False) -> None:
        """Skip blanks and comments. With `lines`, skip line ends as well, and read the here-documents that begin there."""
        lexer = self.lexer
        while True:
            if lexer.take(_BLANKS):
                continue
            if lexer.sees("\\\n"):
                lexer.skip_continuation()
            elif lexer.char() == "#":
                lexer.take(_COMMENT)
            elif lines and lexer.char() == "\n":
                lexer.place += 1
                self._here_documents()
            else:
                return

    def _skip_inside(self) -> None:
        """Skip blanks and line ends within a construct that may span lines."""
        if self.lexer.pending and self.lexer.char() == "\n":
            raise UnparsableError("a word continues after a here-document begins")
        self._skip(lines=not self.lexer.pending)

    def _leading(self) -> str:
        """Return the characters up to a blank or an operator. They may be a reserved word."""
        found = self.lexer.match(_LEADING)
        return found[0] if found else ""

    def _reserved(self, word: str) -> Node:
        if self._leading() != word:
            raise UnparsableError("it is not shell syntax that we can read")
        return self.lexer.mark(word)

    def _statements(self, stops: frozenset[str]) -> list[Node]:
        """Read statements and separators up to a reserved word in `stops`, a closing parenthesis or the end."""
        lexer, found = self.lexer, list[Node]()
        while True:
            self._skip(lines=True)
            if lexer.char() in ("", ")") or self._leading() in stops or lexer.sees(";;") or lexer.sees(";&"):
                return found
            found.append(self._and_or())
            self._skip()
            if lexer.char() == ";" and lexer.char(1) not in (";", "&"):
                found.append(lexer.mark(";"))
            elif lexer.char() == "&" and lexer.char(1) not in ("&", ">"):
                found.append(lexer.mark("&"))
            elif lexer.char() not in ("", ")", "\n", ";"):
                raise UnparsableError("it is not shell syntax that we can read")

    def _and_or(self) -> Node:
        return self._joined("list", ("&&", "||"), self._pipeline)

    def _pipeline(self) -> Node:
        lexer, start = self.lexer, self.lexer.place
        if self._leading() == "!":
            mark = self._reserved("!")
            self._skip()
            with lexer.deeper():
                return lexer.node("negated_command", start, [mark, self._pipeline()])
        return self._joined("pipeline", ("|&", "|"), self._command)

    def _joined(self, type: str, operators: tuple[str, str], part: Callable[[], Node]) -> Node:
        lexer, start = self.lexer, self.lexer.place
        parts = [part()]
        while True:
            end = lexer.place
            self._skip()
            operator = next((each for each in operators if lexer.sees(each)), None)
            if operator is None or (operator == "|" and lexer.sees("||")):
                if len(parts) == 1:
                    return parts[0]
                return Node(type=type, source=lexer.text, start=start, end=end, children=parts)
            parts.append(lexer.mark(operator))
            self._skip(lines=True)
            parts.append(part())

    # --- commands ---

    def _command(self) -> Node:
        lexer = self.lexer
        self._count += 1
        if self._count > MAX_COMMANDS:
            raise UnparsableError("it is too long to be judged")
        with lexer.deeper():
            leading = self._leading()
            if lexer.char() == "(" or leading in _RESERVED:
                return self._redirected(self._compound(leading))
            if (found := lexer.match(_DEFINED)) and found[0] not in _BEFORE:
                return self._function()
            return self._simple()

    def _compound(self, leading: str) -> Node:
        lexer, start = self.lexer, self.lexer.place
        match leading:
            case "" if lexer.sees("(("):
                return lexer.numbers()
            case "":
                parts = [lexer.mark("("), *self._statements(frozenset()), lexer.mark(")")]
                return lexer.node("subshell", start, parts)
            case "{":
                return lexer.node("compound_statement", start, self._group("{", "}"))
            case "if":
                return self._if()
            case "while" | "until":
                parts = [self._reserved(leading), *self._condition("do")]
                return lexer.node("while_statement", start, [*parts, self._body()])
            case "for" | "select":
                return self._for(leading)
            case "case":
                return self._case()
            case "function":
                return self._function()
            case "[[":
                return self._test()
            case _:
                raise UnparsableError("it is not shell syntax that we can read")

    def _group(self, opening: str, closing: str) -> list[Node]:
        return [self._reserved(opening), *self._statements(frozenset({closing})), self._reserved(closing)]

    def _body(self) -> Node:
        start = self.lexer.place
        return self.lexer.node("do_group", start, self._group("do", "done"))

    def _condition(self, stop: str) -> list[Node]:
        found = self._statements(frozenset({stop}))
        return [replace(each, field="condition") if each.is_named else each for each in found]

    def _if(self) -> Node:
        lexer, start = self.lexer, self.lexer.place
        parts = [self._reserved("if"), *self._condition("then"), self._reserved("then")]
        parts += self._statements(frozenset({"elif", "else", "fi"}))
        while self._leading() == "elif":
            here = lexer.place
            own = [self._reserved("elif"), *self._condition("then"), self._reserved("then")]
            own += self._statements(frozenset({"elif", "else", "fi"}))
            parts.append(lexer.node("elif_clause", here, own))
        if self._leading() == "else":
            here = lexer.place
            own = [self._reserved("else"), *self._statements(frozenset({"fi"}))]
            parts.append(lexer.node("else_clause", here, own))
        return lexer.node("if_statement", start, [*parts, self._reserved("fi")])

    def _for(self, leading: str) -> Node:
        lexer, start = self.lexer, self.lexer.place
        parts = [self._reserved(leading)]
        self._skip()
        if leading == "for" and lexer.sees("(("):
            parts.append(lexer.numbers())
            self._between()
            return lexer.node("c_style_for_statement", start, [*parts, self._body()])
        here = lexer.place
        if not lexer.take(_VARIABLE):
            raise UnparsableError("a loop has no variable")
        parts.append(replace(lexer.node("variable_name", here), field="variable"))
        self._skip(lines=True)
        if self._leading() == "in":
            parts.append(self._reserved("in"))
            self._skip()
            while lexer.char() not in ("", "\n", ";"):
                parts.append(replace(lexer.word(), field="value"))
                self._skip()
        self._between()
        return lexer.node("for_statement", start, [*parts, self._body()])

    def _between(self) -> None:
        """Skip the separator between the head of a loop and its body."""
        self._skip()
        if self.lexer.char() == ";":
            self.lexer.mark(";")
        self._skip(lines=True)

    def _case(self) -> Node:
        lexer, start = self.lexer, self.lexer.place
        parts = [self._reserved("case")]
        self._skip()
        parts.append(replace(lexer.word(), field="value"))
        self._skip(lines=True)
        parts.append(self._reserved("in"))
        self._skip(lines=True)
        while self._leading() != "esac":
            parts.append(self._item())
            self._skip(lines=True)
        return lexer.node("case_statement", start, [*parts, self._reserved("esac")])

    def _item(self) -> Node:
        lexer, start = self.lexer, self.lexer.place
        parts = [lexer.mark("(")] if lexer.char() == "(" else []
        while True:
            self._skip()
            parts.append(lexer.word())
            self._skip()
            if lexer.char() != "|":
                break
            parts.append(lexer.mark("|"))
        parts += [lexer.mark(")"), *self._statements(frozenset({"esac"}))]
        ending = next((each for each in (";;&", ";;", ";&") if lexer.sees(each)), None)
        if ending is not None:
            parts.append(lexer.mark(ending))
        elif self._leading() != "esac":
            raise UnparsableError("it is not shell syntax that we can read")
        return lexer.node("case_item", start, parts)

    def _function(self) -> Node:
        lexer, start = self.lexer, self.lexer.place
        parts = list[Node]()
        named = self._leading() == "function"
        if named:
            parts.append(self._reserved("function"))
            self._skip()
        here = lexer.place
        name = lexer.take(_FUNCTION if named else _DEFINED)
        if not name or name in _RESERVED:
            raise UnparsableError("a function has no name that we can read")
        parts.append(replace(lexer.node("word", here), field="name"))
        self._skip()
        if lexer.char() == "(":
            parts.append(lexer.mark("("))
            self._skip()
            parts.append(lexer.mark(")"))
        self._skip(lines=True)
        leading = self._leading()
        if leading == "function" or (lexer.char() != "(" and leading not in _RESERVED):
            raise UnparsableError("a function has a body that we cannot read")
        parts.append(replace(self._compound(leading), field="body"))
        parts += self._redirects()
        return lexer.node("function_definition", start, parts)

    def _test(self) -> Node:
        """Read `[[ … ]]`: words, and operators that only exist here."""
        lexer, start = self.lexer, self.lexer.place
        parts = [self._reserved("[[")]
        while True:
            self._skip_inside()
            if lexer.match(_ENDS_TEST):
                return lexer.node("test_command", start, [*parts, lexer.mark("]]")])
            operator = next((each for each in ("&&", "||", "(", ")", "<", ">") if lexer.sees(each)), None)
            if operator is not None and not (operator in "<>" and lexer.char(1) == "("):
                parts.append(lexer.mark(operator))
            elif self._leading() == "=~":
                parts.append(self._reserved("=~"))
                self._skip()
                parts.append(self._regex())
            else:
                parts.append(lexer.word())

    def _regex(self) -> Node:
        lexer, start, depth = self.lexer, self.lexer.place, 0
        parts = list[Node]()
        while True:
            lexer.take(_REGEX)
            match lexer.char():
                case "(":
                    depth += 1
                    lexer.place += 1
                case ")" if depth:
                    depth -= 1
                    lexer.place += 1
                case "|" if depth:
                    lexer.place += 1
                case "$" if lexer.char(1) in ("", *" \t\n)|"):
                    lexer.place += 1
                case "$" if lexer.char(1) not in ("'", '"'):
                    parts += lexer.quoted_dollar()
                case "\\" if lexer.char(1) not in ("", "\n"):
                    lexer.place += 2
                case " " | "\t" | "\n" if not depth and lexer.place > start:
                    return lexer.node("regex", start, parts)
                case _:
                    raise UnparsableError("there is a pattern in it that we cannot read")

    # --- simple commands ---

    def _simple(self) -> Node:
        lexer, start = self.lexer, self.lexer.place
        parts, first = list[Node](), ""
        words = end = 0
        while True:
            redirect = self._redirect()
            if redirect is not None:
                parts.append(redirect)
            elif lexer.char() in ("", *"\n;&|)"):
                break
            elif (not words or first in _DECLARING) and (
                assignment := self._assignment(declared=words > 0)
            ) is not None:
                parts.append(assignment)
            else:
                leading = self._leading()
                if first in _BEFORE and words == 1 and (leading in _RESERVED or _ASSIGNED.match(leading)):
                    raise UnparsableError(f"there is something after {first} that we cannot read")
                word = lexer.word()
                first = first if words else word.text
                parts.append(replace(word, field="argument" if words else "name"))
                words += 1
            end = lexer.place
            self._skip()
        if not parts:
            raise UnparsableError("it is not shell syntax that we can read")
        return self._shape(start, end, parts, first)

    def _shape(self, start: int, end: int, parts: list[Node], first: str) -> Node:
        """Return the node of a simple command. Builtins with a syntax of their own get their own node type."""
        source = self.lexer.text
        own = [part for part in parts if not part.type.endswith("_redirect")]
        if not any(part.field == "name" for part in own):
            if len(parts) == len(own) == 1:
                return own[0]
            type = "variable_assignments" if len(own) == len(parts) else "command"
            return Node(type=type, source=source, start=start, end=end, children=parts)
        special = {
            "[": "test_command",
            "unset": "unset_command",
            **dict.fromkeys(_DECLARING, "declaration_command"),
        }
        if first not in special:
            return Node(type="command", source=source, start=start, end=end, children=parts)
        if own[0].field != "name":
            raise UnparsableError(f"a variable is assigned before {first}")
        if first == "[" and own[-1].text != "]":
            raise UnparsableError("a test is not closed")
        mark = replace(own[0], is_named=False, type=first)
        inner = Node(
            type=special[first], source=source, start=own[0].start, end=own[-1].end, children=(mark, *own[1:])
        )
        redirects = [part for part in parts if part.type.endswith("_redirect")]
        if not redirects:
            return inner
        return Node(
            type="redirected_statement",
            source=source,
            start=start,
            end=end,
            children=(replace(inner, field="body"), *redirects),
        )

    def _assignment(self, *, declared: bool) -> Node | None:
        lexer, start = self.lexer, self.lexer.place
        if not (found := lexer.match(_ASSIGNED)):
            return None
        lexer.place = found.end()
        name = lexer.node("variable_name", start)
        if lexer.char() == "[":
            name = lexer.node("subscript", start, [name, *lexer.subscript()])
            if declared and set(" \t\n") & set(name.text):
                raise UnparsableError("there are blanks in the name of a variable")
            if not lexer.match(_EQUALS):
                lexer.place = start
                return None
        equals = lexer.match(_EQUALS)
        parts = [replace(name, field="name"), lexer.mark(equals[0] if equals else "=")]
        if lexer.char() == "(":
            parts.append(replace(self._array(), field="value"))
        elif lexer.char() not in _ENDS_WORD or lexer.sees("<(") or lexer.sees(">("):
            parts.append(replace(lexer.word(), field="value"))
        return lexer.node("variable_assignment", start, parts)

    def _array(self) -> Node:
        """Read the elements of an array.

        Their keys are evaluated as arithmetic, which may run the content of a variable.
        """
        lexer, start = self.lexer, self.lexer.place
        parts = [lexer.mark("(")]
        self._skip_inside()
        while lexer.char() != ")":
            if lexer.char() == "[" and not lexer.match(_KEY):
                raise UnparsableError("there is a key in an array that we cannot read")
            parts.append(lexer.word())
            self._skip_inside()
        return lexer.node("array", start, [*parts, lexer.mark(")")])

    # --- redirections ---

    def _redirected(self, inner: Node) -> Node:
        redirects = self._redirects()
        if not redirects:
            return inner
        return self.lexer.node(
            "redirected_statement", inner.start, [replace(inner, field="body"), *redirects]
        )

    def _redirects(self) -> list[Node]:
        lexer, found = self.lexer, list[Node]()
        while True:
            end = lexer.place
            self._skip()
            redirect = self._redirect()
            if redirect is None:
                lexer.place = end
                return found
            found.append(redirect)

    def _redirect(self) -> Node | None:
        lexer, start = self.lexer, self.lexer.place
        if lexer.match(_NAMED_FD):
            raise UnparsableError("a redirection sets a variable")
        found = lexer.match(_REDIRECT)
        if found is None:
            return None
        operator = found["operator"] or found["both"]
        if operator in "<>" and self.lexer.text[found.end() : found.end() + 1] == "(":
            if found["fd"]:
                raise UnparsableError("a process substitution is joined to a word")
            return None
        parts = list[Node]()
        if found["fd"]:
            lexer.place += len(found["fd"])
            parts.append(lexer.node("file_descriptor", start))
        parts.append(lexer.mark(operator))
        self._skip()
        if operator in ("<<", "<<-"):
            return self._here_document(start, parts)
        if lexer.char() in ("!", "|"):
            raise UnparsableError("shells read a redirection differently")
        word = replace(lexer.word(), field="destination")
        type = "herestring_redirect" if operator == "<<<" else "file_redirect"
        return lexer.node(type, start, [*parts, word])

    def _here_document(self, start: int, parts: list[Node]) -> Node:
        lexer, here = self.lexer, self.lexer.place
        found = lexer.match(_DELIMITER)
        if found is None:
            raise UnparsableError("the end marker of a here-document is not plain")
        lexer.place = found.end()
        if lexer.char() not in _ENDS_WORD:
            raise UnparsableError("the end marker of a here-document is not plain")
        parts.append(lexer.node("heredoc_start", here))
        document = HereDocument(
            parts=parts,
            delimiter=found["single"] or found["double"] or found["plain"],
            quoted=found["plain"] is None or bool(found["escape"]),
            tabs=parts[-2].type == "<<-",
        )
        lexer.pending.append(document)
        return Node(type="heredoc_redirect", source=lexer.text, start=start, end=lexer.place, children=parts)

    def _here_documents(self) -> None:
        """Read the bodies of the here-documents that were announced on the line that has just ended."""
        lexer = self.lexer
        waiting, lexer.pending = lexer.pending, []
        for document in waiting:
            start = lexer.place
            end = self._find_end(document)
            inside = [] if document.quoted else self._expanded(start, end)
            document.parts.append(
                Node(type="heredoc_body", source=lexer.text, start=start, end=end, children=inside)
            )

    def _expanded(self, start: int, end: int) -> list[Node]:
        lexer = self.lexer
        place, limit = lexer.place, lexer.limit
        lexer.place, lexer.limit = start, end
        found = lexer.body()
        lexer.place, lexer.limit = place, limit
        return found

    def _find_end(self, document: HereDocument) -> int:
        """Return where the body ends, and continue behind its end marker."""
        lexer, joined = self.lexer, ""
        while lexer.place < lexer.limit:
            start = lexer.place
            end = lexer.text.find("\n", start, lexer.limit)
            end = lexer.limit if end < 0 else end
            line = lexer.text[start:end].lstrip("\t") if document.tabs else lexer.text[start:end]
            lexer.place = min(end + 1, lexer.limit)
            if line == document.delimiter and not joined:
                return start
            if joined and document.delimiter in (line, joined + line):
                raise UnparsableError("a line is broken where a here-document may end")
            continued = not document.quoted and (len(line) - len(line.rstrip("\\"))) % 2 == 1
            # The line after a continued line is not a new line, even if the continued line was empty.
            joined = (joined + line[:-1] or "\n") if continued else ""
        raise UnparsableError("a here-document has no end")


MAX_SCRIPT_CHARACTERS: Final = 256 * 1024
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


# Syntax of bash and zsh that plain shells read differently, for example as a program named `[[`.
_BASH_ONLY: Final = re.compile(
    r"\[\[|(?<!\$)\(\(|\$['\"\[]|&>|[<>]\(|<<<|\|&|;&|;;&|\b(?:function|select|coproc)\b"
)
PLAIN_SHELLS: Final = frozenset({"sh", "dash", "ash", "posh", "busybox"})


def reads_like_bash(text: str, shell: str) -> bool:
    """Return True if a shell reads a text as bash does, as far as we can tell."""
    return shell.rpartition("/")[2] not in PLAIN_SHELLS or _BASH_ONLY.search(text) is None


def parse(text: str) -> Node | str:
    """Return the syntax tree of a script, or the reason why it cannot be read with certainty."""
    if len(text) > MAX_SCRIPT_CHARACTERS:
        return "it is too long to be judged"
    if _CONTROL.search(text):
        return "there are control characters in it"
    try:
        return parse_script(text)
    except UnparsableError as error:
        return str(error)
