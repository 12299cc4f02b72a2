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
_UNQUOTED_WORD: Final = re.compile(r"[^ \t\n;&|<>()]+")
_RESERVED_WORDS: Final = split_names(
    "if then else elif fi for while until do done case esac select function in { } ! [[ ]]"
)
# After these words, the shell reads another command, including assignments before it.
_COMMAND_PREFIXES: Final = split_names("time coproc")
_DECLARING_BUILTINS: Final = split_names("declare typeset local export readonly")
_REDIRECT: Final = re.compile(r"(?P<fd>[0-9]*)(?P<operator><<<|<<-|<<|<>|<&|>&|>>|>\||<|>)|(?P<both>&>>|&>)")
_NAMED_FD: Final = re.compile(r"\{[A-Za-z_]\w*\}[<>]", re.ASCII)
_ASSIGNED_NAME: Final = re.compile(r"[A-Za-z_]\w*(?=\+?=|\[)", re.ASCII)
_ASSIGNMENT_OPERATOR: Final = re.compile(r"\+?=")
_DEFINED_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.:-]*(?=[ \t]*\([ \t]*\))", re.ASCII)
_FUNCTION_NAME: Final = re.compile(r"[A-Za-z_][\w.:-]*(?=[ \t\n({])", re.ASCII)
_LOOP_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*(?=[ \t\n;])", re.ASCII)
_HEREDOC_DELIMITER: Final = re.compile(
    r"""'(?P<single>[^'\n]+)'|"(?P<double>[^"\\$`\n]+)"|(?P<escape>\\?)(?P<plain>[\w.!+-]+)"""
)
_WORD_ENDS: Final = frozenset(("", *" \t\n;&|<>()"))
# A key that is a number, or a quoted text in which nothing is expanded.
_ARRAY_KEY: Final = re.compile(r"""\[(?:\w+|"[^"$`\\\n\[]*"|'[^'$`\\\n\[]*')\]=""")
_REGEX_TEXT: Final = re.compile(r"[^ \t\n\\'\"$`()<>;&|]+")
_TEST_END: Final = re.compile(r"\]\](?=[ \t\n;&|<>()]|$)")


class _Grammar:
    """A recursive-descent parser, with a method for each construct of the shell."""

    def __init__(self, text: str) -> None:
        self.lexer = Lexer(text, lambda: self._parse_statements(frozenset()))
        self._command_count = 0

    def parse_program(self) -> Node:
        """Return the syntax tree. Raise `UnparsableError` if a part cannot be read with certainty."""
        statements = self._parse_statements(frozenset())
        lexer = self.lexer
        if lexer.position != len(lexer.text) or lexer.pending:
            raise UnparsableError("it is not shell syntax that we can read")
        return lexer.node("program", 0, statements)

    # --- between commands ---

    def _skip(self, *, lines: bool = False) -> None:
        """Skip blanks and comments. With `lines`, skip line ends as well, and read the here-documents that follow them."""
        lexer = self.lexer
        while True:
            if lexer.read(_BLANKS):
                continue
            if lexer.starts_with("\\\n"):
                lexer.skip_continuation()
            elif lexer.peek() == "#":
                lexer.read(_COMMENT)
            elif lines and lexer.peek() == "\n":
                lexer.position += 1
                self._read_here_documents()
            else:
                return

    def _skip_inside(self) -> None:
        """Skip blanks and line ends within a construct that may span lines."""
        if self.lexer.pending and self.lexer.peek() == "\n":
            raise UnparsableError("a word continues after a here-document begins")
        self._skip(lines=not self.lexer.pending)

    def _peek_word(self) -> str:
        """Return the characters up to a blank or an operator. They may be a reserved word."""
        found = self.lexer.match(_UNQUOTED_WORD)
        return found[0] if found else ""

    def _expect_reserved(self, word: str) -> Node:
        if self._peek_word() != word:
            raise UnparsableError("it is not shell syntax that we can read")
        return self.lexer.expect(word)

    def _parse_statements(self, stops: frozenset[str]) -> list[Node]:
        """Read statements and separators up to a reserved word in `stops`, a closing parenthesis or the end."""
        lexer, statements = self.lexer, list[Node]()
        while True:
            self._skip(lines=True)
            if (
                lexer.peek() in ("", ")")
                or self._peek_word() in stops
                or lexer.starts_with(";;")
                or lexer.starts_with(";&")
            ):
                return statements
            statements.append(self._parse_and_or())
            self._skip()
            if lexer.peek() == ";" and lexer.peek(1) not in (";", "&"):
                statements.append(lexer.expect(";"))
            elif lexer.peek() == "&" and lexer.peek(1) not in ("&", ">"):
                statements.append(lexer.expect("&"))
            elif lexer.peek() not in ("", ")", "\n", ";"):
                raise UnparsableError("it is not shell syntax that we can read")

    def _parse_and_or(self) -> Node:
        return self._parse_joined("list", ("&&", "||"), self._parse_pipeline)

    def _parse_pipeline(self) -> Node:
        lexer, start = self.lexer, self.lexer.position
        if self._peek_word() == "!":
            negation = self._expect_reserved("!")
            self._skip()
            with lexer.nest():
                return lexer.node("negated_command", start, [negation, self._parse_pipeline()])
        return self._parse_joined("pipeline", ("|&", "|"), self._parse_command)

    def _parse_joined(
        self, node_type: str, operators: tuple[str, str], parse_part: Callable[[], Node]
    ) -> Node:
        lexer, start = self.lexer, self.lexer.position
        parts = [parse_part()]
        while True:
            end = lexer.position
            self._skip()
            operator = next((each for each in operators if lexer.starts_with(each)), None)
            if operator is None or (operator == "|" and lexer.starts_with("||")):
                if len(parts) == 1:
                    return parts[0]
                return Node(type=node_type, source=lexer.text, start=start, end=end, children=parts)
            parts.append(lexer.expect(operator))
            self._skip(lines=True)
            parts.append(parse_part())

    # --- commands ---

    def _parse_command(self) -> Node:
        lexer = self.lexer
        self._command_count += 1
        if self._command_count > MAX_COMMANDS:
            raise UnparsableError("it is too long to be judged")
        with lexer.nest():
            leading = self._peek_word()
            if lexer.peek() == "(" or leading in _RESERVED_WORDS:
                return self._parse_redirected(self._parse_compound(leading))
            if (found := lexer.match(_DEFINED_FUNCTION)) and found[0] not in _COMMAND_PREFIXES:
                return self._parse_function()
            return self._parse_simple_command()

    def _parse_compound(self, leading: str) -> Node:
        lexer, start = self.lexer, self.lexer.position
        match leading:
            case "" if lexer.starts_with("(("):
                return lexer.read_arithmetic_command()
            case "":
                parts = [lexer.expect("("), *self._parse_statements(frozenset()), lexer.expect(")")]
                return lexer.node("subshell", start, parts)
            case "{":
                return lexer.node("compound_statement", start, self._parse_group("{", "}"))
            case "if":
                return self._parse_if()
            case "while" | "until":
                parts = [self._expect_reserved(leading), *self._parse_condition("do")]
                return lexer.node("while_statement", start, [*parts, self._parse_loop_body()])
            case "for" | "select":
                return self._parse_for(leading)
            case "case":
                return self._parse_case()
            case "function":
                return self._parse_function()
            case "[[":
                return self._parse_test()
            case _:
                raise UnparsableError("it is not shell syntax that we can read")

    def _parse_group(self, opening: str, closing: str) -> list[Node]:
        return [
            self._expect_reserved(opening),
            *self._parse_statements(frozenset({closing})),
            self._expect_reserved(closing),
        ]

    def _parse_loop_body(self) -> Node:
        start = self.lexer.position
        return self.lexer.node("do_group", start, self._parse_group("do", "done"))

    def _parse_condition(self, stop: str) -> list[Node]:
        statements = self._parse_statements(frozenset({stop}))
        return [
            replace(statement, field="condition") if statement.is_named else statement
            for statement in statements
        ]

    def _parse_if(self) -> Node:
        lexer, start = self.lexer, self.lexer.position
        parts = [self._expect_reserved("if"), *self._parse_condition("then"), self._expect_reserved("then")]
        parts += self._parse_statements(frozenset({"elif", "else", "fi"}))
        while self._peek_word() == "elif":
            part_start = lexer.position
            clause = [
                self._expect_reserved("elif"),
                *self._parse_condition("then"),
                self._expect_reserved("then"),
            ]
            clause += self._parse_statements(frozenset({"elif", "else", "fi"}))
            parts.append(lexer.node("elif_clause", part_start, clause))
        if self._peek_word() == "else":
            part_start = lexer.position
            clause = [self._expect_reserved("else"), *self._parse_statements(frozenset({"fi"}))]
            parts.append(lexer.node("else_clause", part_start, clause))
        return lexer.node("if_statement", start, [*parts, self._expect_reserved("fi")])

    def _parse_for(self, leading: str) -> Node:
        lexer, start = self.lexer, self.lexer.position
        parts = [self._expect_reserved(leading)]
        self._skip()
        if leading == "for" and lexer.starts_with("(("):
            parts.append(lexer.read_arithmetic_command())
            self._skip_loop_separator()
            return lexer.node("c_style_for_statement", start, [*parts, self._parse_loop_body()])
        part_start = lexer.position
        if not lexer.read(_LOOP_VARIABLE):
            raise UnparsableError("a loop has no variable")
        parts.append(replace(lexer.node("variable_name", part_start), field="variable"))
        self._skip(lines=True)
        if self._peek_word() == "in":
            parts.append(self._expect_reserved("in"))
            self._skip()
            while lexer.peek() not in ("", "\n", ";"):
                parts.append(replace(lexer.read_word(), field="value"))
                self._skip()
        self._skip_loop_separator()
        return lexer.node("for_statement", start, [*parts, self._parse_loop_body()])

    def _skip_loop_separator(self) -> None:
        """Skip the separator between the head of a loop and its body."""
        self._skip()
        if self.lexer.peek() == ";":
            self.lexer.expect(";")
        self._skip(lines=True)

    def _parse_case(self) -> Node:
        lexer, start = self.lexer, self.lexer.position
        parts = [self._expect_reserved("case")]
        self._skip()
        parts.append(replace(lexer.read_word(), field="value"))
        self._skip(lines=True)
        parts.append(self._expect_reserved("in"))
        self._skip(lines=True)
        while self._peek_word() != "esac":
            parts.append(self._parse_case_item())
            self._skip(lines=True)
        return lexer.node("case_statement", start, [*parts, self._expect_reserved("esac")])

    def _parse_case_item(self) -> Node:
        lexer, start = self.lexer, self.lexer.position
        parts = [lexer.expect("(")] if lexer.peek() == "(" else []
        while True:
            self._skip()
            parts.append(lexer.read_word())
            self._skip()
            if lexer.peek() != "|":
                break
            parts.append(lexer.expect("|"))
        parts += [lexer.expect(")"), *self._parse_statements(frozenset({"esac"}))]
        ending = next((each for each in (";;&", ";;", ";&") if lexer.starts_with(each)), None)
        if ending is not None:
            parts.append(lexer.expect(ending))
        elif self._peek_word() != "esac":
            raise UnparsableError("it is not shell syntax that we can read")
        return lexer.node("case_item", start, parts)

    def _parse_function(self) -> Node:
        lexer, start = self.lexer, self.lexer.position
        parts = list[Node]()
        has_keyword = self._peek_word() == "function"
        if has_keyword:
            parts.append(self._expect_reserved("function"))
            self._skip()
        part_start = lexer.position
        name = lexer.read(_FUNCTION_NAME if has_keyword else _DEFINED_FUNCTION)
        if not name or name in _RESERVED_WORDS:
            raise UnparsableError("a function has no name that we can read")
        parts.append(replace(lexer.node("word", part_start), field="name"))
        self._skip()
        if lexer.peek() == "(":
            parts.append(lexer.expect("("))
            self._skip()
            parts.append(lexer.expect(")"))
        self._skip(lines=True)
        leading = self._peek_word()
        if leading == "function" or (lexer.peek() != "(" and leading not in _RESERVED_WORDS):
            raise UnparsableError("a function has a body that we cannot read")
        parts.append(replace(self._parse_compound(leading), field="body"))
        parts += self._parse_redirects()
        return lexer.node("function_definition", start, parts)

    def _parse_test(self) -> Node:
        """Read `[[ … ]]`: words, and operators that only exist here."""
        lexer, start = self.lexer, self.lexer.position
        parts = [self._expect_reserved("[[")]
        while True:
            self._skip_inside()
            if lexer.match(_TEST_END):
                return lexer.node("test_command", start, [*parts, lexer.expect("]]")])
            operator = next(
                (each for each in ("&&", "||", "(", ")", "<", ">") if lexer.starts_with(each)), None
            )
            if operator is not None and not (operator in "<>" and lexer.peek(1) == "("):
                parts.append(lexer.expect(operator))
            elif self._peek_word() == "=~":
                parts.append(self._expect_reserved("=~"))
                self._skip()
                parts.append(self._parse_regex())
            else:
                parts.append(lexer.read_word())

    def _parse_regex(self) -> Node:
        lexer, start, depth = self.lexer, self.lexer.position, 0
        parts = list[Node]()
        while True:
            lexer.read(_REGEX_TEXT)
            match lexer.peek():
                case "(":
                    depth += 1
                    lexer.position += 1
                case ")" if depth:
                    depth -= 1
                    lexer.position += 1
                case "|" if depth:
                    lexer.position += 1
                case "$" if lexer.peek(1) in ("", *" \t\n)|"):
                    lexer.position += 1
                case "$" if lexer.peek(1) not in ("'", '"'):
                    parts += lexer.read_quoted_dollar()
                case "\\" if lexer.peek(1) not in ("", "\n"):
                    lexer.position += 2
                case " " | "\t" | "\n" if not depth and lexer.position > start:
                    return lexer.node("regex", start, parts)
                case _:
                    raise UnparsableError("there is a pattern in it that we cannot read")

    # --- simple commands ---

    def _parse_simple_command(self) -> Node:
        lexer, start = self.lexer, self.lexer.position
        parts, first = list[Node](), ""
        words = end = 0
        while True:
            redirect = self._parse_redirect()
            if redirect is not None:
                parts.append(redirect)
            elif lexer.peek() in ("", *"\n;&|)"):
                break
            elif (not words or first in _DECLARING_BUILTINS) and (
                assignment := self._parse_assignment(declared=words > 0)
            ) is not None:
                parts.append(assignment)
            else:
                leading = self._peek_word()
                if (
                    first in _COMMAND_PREFIXES
                    and words == 1
                    and (leading in _RESERVED_WORDS or _ASSIGNED_NAME.match(leading))
                ):
                    raise UnparsableError(f"there is something after {first} that we cannot read")
                word = lexer.read_word()
                first = first if words else word.text
                parts.append(replace(word, field="argument" if words else "name"))
                words += 1
            end = lexer.position
            self._skip()
        if not parts:
            raise UnparsableError("it is not shell syntax that we can read")
        return self._build_command(start, end, parts, first)

    def _build_command(self, start: int, end: int, parts: list[Node], first: str) -> Node:
        """Return the node of a simple command. Builtins with a syntax of their own get their own node type."""
        source = self.lexer.text
        own_parts = [part for part in parts if not part.type.endswith("_redirect")]
        if not any(part.field == "name" for part in own_parts):
            if len(parts) == len(own_parts) == 1:
                return own_parts[0]
            type = "variable_assignments" if len(own_parts) == len(parts) else "command"
            return Node(type=type, source=source, start=start, end=end, children=parts)
        special = {
            "[": "test_command",
            "unset": "unset_command",
            **dict.fromkeys(_DECLARING_BUILTINS, "declaration_command"),
        }
        if first not in special:
            return Node(type="command", source=source, start=start, end=end, children=parts)
        if own_parts[0].field != "name":
            raise UnparsableError(f"a variable is assigned before {first}")
        if first == "[" and own_parts[-1].text != "]":
            raise UnparsableError("a test is not closed")
        name = replace(own_parts[0], is_named=False, type=first)
        inner = Node(
            type=special[first],
            source=source,
            start=own_parts[0].start,
            end=own_parts[-1].end,
            children=(name, *own_parts[1:]),
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

    def _parse_assignment(self, *, declared: bool) -> Node | None:
        lexer, start = self.lexer, self.lexer.position
        if not (match := lexer.match(_ASSIGNED_NAME)):
            return None
        lexer.position = match.end()
        name = lexer.node("variable_name", start)
        if lexer.peek() == "[":
            name = lexer.node("subscript", start, [name, *lexer.read_subscript()])
            if declared and set(" \t\n") & set(name.text):
                raise UnparsableError("there are blanks in the name of a variable")
            if not lexer.match(_ASSIGNMENT_OPERATOR):
                lexer.position = start
                return None
        equals = lexer.match(_ASSIGNMENT_OPERATOR)
        parts = [replace(name, field="name"), lexer.expect(equals[0] if equals else "=")]
        if lexer.peek() == "(":
            parts.append(replace(self._parse_array(), field="value"))
        elif lexer.peek() not in _WORD_ENDS or lexer.starts_with("<(") or lexer.starts_with(">("):
            parts.append(replace(lexer.read_word(), field="value"))
        return lexer.node("variable_assignment", start, parts)

    def _parse_array(self) -> Node:
        """Read the elements of an array.

        Their keys are evaluated as arithmetic, which may run the content of a variable.
        """
        lexer, start = self.lexer, self.lexer.position
        parts = [lexer.expect("(")]
        self._skip_inside()
        while lexer.peek() != ")":
            if lexer.peek() == "[" and not lexer.match(_ARRAY_KEY):
                raise UnparsableError("there is a key in an array that we cannot read")
            parts.append(lexer.read_word())
            self._skip_inside()
        return lexer.node("array", start, [*parts, lexer.expect(")")])

    # --- redirections ---

    def _parse_redirected(self, inner: Node) -> Node:
        redirects = self._parse_redirects()
        if not redirects:
            return inner
        return self.lexer.node(
            "redirected_statement", inner.start, [replace(inner, field="body"), *redirects]
        )

    def _parse_redirects(self) -> list[Node]:
        lexer, redirects = self.lexer, list[Node]()
        while True:
            end = lexer.position
            self._skip()
            redirect = self._parse_redirect()
            if redirect is None:
                lexer.position = end
                return redirects
            redirects.append(redirect)

    def _parse_redirect(self) -> Node | None:
        lexer, start = self.lexer, self.lexer.position
        if lexer.match(_NAMED_FD):
            raise UnparsableError("a redirection sets a variable")
        match = lexer.match(_REDIRECT)
        if match is None:
            return None
        operator = match["operator"] or match["both"]
        if operator in "<>" and self.lexer.text[match.end() : match.end() + 1] == "(":
            if match["fd"]:
                raise UnparsableError("a process substitution is joined to a word")
            return None
        parts = list[Node]()
        if match["fd"]:
            lexer.position += len(match["fd"])
            parts.append(lexer.node("file_descriptor", start))
        parts.append(lexer.expect(operator))
        self._skip()
        if operator in ("<<", "<<-"):
            return self._parse_here_document(start, parts)
        if lexer.peek() in ("!", "|"):
            raise UnparsableError("shells read a redirection differently")
        word = replace(lexer.read_word(), field="destination")
        type = "herestring_redirect" if operator == "<<<" else "file_redirect"
        return lexer.node(type, start, [*parts, word])

    def _parse_here_document(self, start: int, parts: list[Node]) -> Node:
        lexer, part_start = self.lexer, self.lexer.position
        match = lexer.match(_HEREDOC_DELIMITER)
        if match is None:
            raise UnparsableError("the end marker of a here-document is not plain")
        lexer.position = match.end()
        if lexer.peek() not in _WORD_ENDS:
            raise UnparsableError("the end marker of a here-document is not plain")
        parts.append(lexer.node("heredoc_start", part_start))
        document = HereDocument(
            parts=parts,
            delimiter=match["single"] or match["double"] or match["plain"],
            quoted=match["plain"] is None or bool(match["escape"]),
            strips_tabs=parts[-2].type == "<<-",
        )
        lexer.pending.append(document)
        return Node(
            type="heredoc_redirect", source=lexer.text, start=start, end=lexer.position, children=parts
        )

    def _read_here_documents(self) -> None:
        """Read the bodies of the here-documents that began on the line that has just ended."""
        lexer = self.lexer
        documents, lexer.pending = lexer.pending, []
        for document in documents:
            start = lexer.position
            end = self._find_here_document_end(document)
            expansions = [] if document.quoted else self._read_body_expansions(start, end)
            document.parts.append(
                Node(type="heredoc_body", source=lexer.text, start=start, end=end, children=expansions)
            )

    def _read_body_expansions(self, start: int, end: int) -> list[Node]:
        lexer = self.lexer
        position, limit = lexer.position, lexer.limit
        lexer.position, lexer.limit = start, end
        expansions = lexer.read_here_document_body()
        lexer.position, lexer.limit = position, limit
        return expansions

    def _find_here_document_end(self, document: HereDocument) -> int:
        """Return the position where the body ends, and continue after its end marker."""
        lexer, joined = self.lexer, ""
        while lexer.position < lexer.limit:
            start = lexer.position
            end = lexer.text.find("\n", start, lexer.limit)
            end = lexer.limit if end < 0 else end
            line = lexer.text[start:end].lstrip("\t") if document.strips_tabs else lexer.text[start:end]
            lexer.position = min(end + 1, lexer.limit)
            if line == document.delimiter and not joined:
                return start
            if joined and document.delimiter in (line, joined + line):
                raise UnparsableError("a line is broken where a here-document may end")
            continued = not document.quoted and (len(line) - len(line.rstrip("\\"))) % 2 == 1
            # The line after a continued line is not a new line, even if the continued line was empty.
            joined = (joined + line[:-1] or "\n") if continued else ""
        raise UnparsableError("a here-document has no end")


MAX_SCRIPT_CHARACTERS: Final = 256 * 1024
_CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


# Syntax of bash and zsh that plain shells read differently, for example as a program named `[[`.
_BASH_SYNTAX: Final = re.compile(
    r"\[\[|(?<!\$)\(\(|\$['\"\[]|&>|[<>]\(|<<<|\|&|;&|;;&|\b(?:function|select|coproc)\b"
)
PLAIN_SHELLS: Final = frozenset({"sh", "dash", "ash", "posh", "busybox"})


def reads_like_bash(text: str, shell: str) -> bool:
    """Return True if a shell reads a text as bash does, as far as we can tell."""
    return shell.rpartition("/")[2] not in PLAIN_SHELLS or _BASH_SYNTAX.search(text) is None


def parse(text: str) -> Node | str:
    """Return the syntax tree of a script, or the reason why it cannot be read with certainty."""
    if len(text) > MAX_SCRIPT_CHARACTERS:
        return "it is too long to be judged"
    if _CONTROL_CHARACTERS.search(text):
        return "there are control characters in it"
    try:
        return _Grammar(text).parse_program()
    except UnparsableError as error:
        return str(error)
