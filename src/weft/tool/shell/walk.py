"""Walk through a command as the shell would run it, and note every action that it may take."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise, product
from math import prod
from typing import Final

from msgspec import Struct

from weft.model.permission import has_hole, mark_unknown
from weft.tool.shell.arguments import Field, Fields, Number, Value
from weft.tool.shell.grammar import parse
from weft.tool.shell.invocations import TOO_DEEP_REASON, InvocationJudge, NestingDepth
from weft.tool.shell.lexer import Node
from weft.tool.shell.paths import expand_glob
from weft.tool.shell.patterns import WrittenWord, list_line_actions
from weft.tool.shell.program.builtins import examine_builtin, takes_variable_name
from weft.tool.shell.program.output import predict_output
from weft.tool.shell.redirect import read_redirections
from weft.tool.shell.state import ShellState, StreamContent, is_safe_number, names_safe_number
from weft.tool.shell.words import WordReader


class PipelineStage(Struct, frozen=True):
    """A command of a pipeline, with the redirections around it."""

    node: Node
    redirects: tuple[Node, ...] = ()


class PipelineStep(Struct, frozen=True):
    """A pipeline, and the operator that joins it to the one before."""

    operator: str
    stages: tuple[PipelineStage, ...]


def split_steps(node: Node, redirects: tuple[Node, ...] = ()) -> list[PipelineStep]:
    """Split a statement into its pipelines."""
    match node.type:
        case "list":
            return _split_list(node, redirects)
        case "pipeline":
            return _split_pipeline(node, redirects)
        case "redirected_statement":
            return _split_redirected(node, redirects)
        case "variable_assignments":
            return [PipelineStep("", (PipelineStage(child),)) for child in node.named_children]
        case _:
            return [PipelineStep("", (PipelineStage(node, redirects),))]


def _split_list(node: Node, redirects: tuple[Node, ...]) -> list[PipelineStep]:
    steps: list[PipelineStep] = []
    operator = ""
    for child in node.children:
        if not child.is_named:
            operator = child.type
            continue
        steps_of_child = split_steps(child, redirects if child is node.children[-1] else ())
        steps += _join_steps(operator, steps_of_child)
    return steps


def _split_pipeline(node: Node, redirects: tuple[Node, ...]) -> list[PipelineStep]:
    stages = node.named_children
    steps: list[PipelineStep] = []
    for index, child in enumerate(stages):
        steps_of_child = split_steps(child, redirects if index == len(stages) - 1 else ())
        steps = _join_pipelines(steps, steps_of_child) if steps else steps_of_child
    return steps


def _split_redirected(node: Node, redirects: tuple[Node, ...]) -> list[PipelineStep]:
    body = node.child_by_field_name("body")
    own_redirects = tuple(child for child in node.named_children if child.type.endswith("_redirect"))
    return split_steps(body, (*own_redirects, *redirects)) if body is not None else []


def _join_pipelines(steps: list[PipelineStep], more: list[PipelineStep]) -> list[PipelineStep]:
    if not steps or not more:
        return [*steps, *more]
    joined = PipelineStep(steps[-1].operator, (*steps[-1].stages, *more[0].stages))
    return [*steps[:-1], joined, *more[1:]]


def _join_steps(operator: str, steps: list[PipelineStep]) -> list[PipelineStep]:
    return [PipelineStep(operator, steps[0].stages), *steps[1:]] if steps else []


MAX_EXPANSIONS: Final = 16


def expand_command(nodes: Sequence[Node], words: WordReader) -> list[list[WrittenWord]] | None:
    """Return every possible expansion of a command, except empty ones. Return None if there are too many."""
    choices = [_list_choices(node, words) for node in nodes]
    if prod(map(len, choices)) > MAX_EXPANSIONS:
        return None
    lines = [[word for part in expansion for word in part] for expansion in product(*choices)]
    return [line for line in lines if line]


def _list_choices(node: Node, words: WordReader) -> list[list[WrittenWord]]:
    source = node.text
    return [
        [WrittenWord(field, source if len(expansion) == 1 else field.text) for field in expansion]
        for expansion in words.list_expansions(node)
    ]


def make_word_reader(state: ShellState, functions: Collection[str]) -> WordReader:
    """Return a reader that evaluates words in a state. The output of these functions is unknown."""
    evaluator = _WordEvaluator(state, functions)
    state.lookup = evaluator.words.lookup
    return evaluator.words


class _WordEvaluator:
    """Evaluates variables and substitutions for a `WordReader`."""

    def __init__(self, state: ShellState, functions: Collection[str]) -> None:
        self._state = state
        self._functions = functions
        self.words = WordReader(lookup=self._lookup, output=self._predict, home=state.location.home)

    def _lookup(self, name: str) -> Sequence[Value] | None:
        if name == "PWD":
            return self._state.cwds
        return self._state.variables.lookup(name, self._evaluate)

    def _evaluate(self, node: Node, in_loop: bool) -> list[Value]:
        if not in_loop:
            return self.words.list_values(node)
        return [
            value
            for expansion in self.words.list_expansions(node)
            for field in expansion
            for value in self._list_field_values(field)
        ]

    def _list_field_values(self, field: Field) -> list[Value]:
        if field.listing is not None:
            return [field.listing]
        if field.is_number:
            return [Number.SOME]
        if not field.glob_pattern:
            return [field.text]
        if self._state.cwds is None or "**" in field.glob_pattern:
            return [mark_unknown(field.text)]
        return [
            name
            for cwd in self._state.cwds
            for name in expand_glob(field.glob_pattern, cwd) or [mark_unknown(field.text)]
        ]

    def _predict(self, node: Node) -> list[Value] | None:
        """Predict the output of a substitution. Return None unless it is a single predictable pipeline."""
        statements = node.named_children
        steps = split_steps(statements[0]) if len(statements) == 1 else []
        if len(steps) != 1:
            return None
        stream: StreamContent | None = None
        for stage in steps[0].stages:
            argv = self._expand_argv(stage)
            if argv is None or (argv and argv[0].text in self._functions):
                return None
            stream = predict_output(argv, self._state, stream)
        return None if stream is None else _to_values(stream)

    def _expand_argv(self, stage: PipelineStage) -> Fields | None:
        """Return the words of a simple command if they have only one expansion."""
        node = stage.node
        if node.type != "command" or stage.redirects:
            return None
        words = [child for child in node.children if child.field in ("name", "argument")]
        others = [child for child in node.children if child.field not in ("name", "argument")]
        # `wc` prints a number, whatever it reads.
        if others and (words[:1] == [] or words[0].text != "wc" or not all(map(_is_input, others))):
            return None
        expansions = list(product(*(self.words.list_expansions(word) for word in words)))
        return tuple(field for part in expansions[0] for field in part) if len(expansions) == 1 else None


def _is_input(node: Node) -> bool:
    return node.type == "file_redirect" and node.children[0].type == "<"


def _to_values(stream: StreamContent) -> list[Value] | None:
    if stream.number:
        return [Number.SOME]
    if stream.listing is not None:
        return [stream.listing]
    return None if stream.text is None else [stream.text.rstrip("\n")]


_SUBSTITUTIONS: Final = frozenset({"command_substitution", "process_substitution"})
_ARITHMETIC: Final = frozenset({"arithmetic_expansion", "arithmetic_command", "subscript"})
_ARRAY_KEY: Final = re.compile(r"\[['\"]?([^\]'\"]*)")
_NUMERIC_COMPARISONS: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_UNKNOWN_OPERAND: Final = "an arithmetic operand is known only at run time, and may run a command"


class ScriptWalker:
    """Walks through one command, including the scripts and functions that it runs."""

    def __init__(self, state: ShellState) -> None:
        self._state = state
        self._functions: dict[str, Node] = {}
        self._words = make_word_reader(state, self._functions.keys())
        self._depth = NestingDepth()
        self._invocations = InvocationJudge(state, self._depth, self.walk_script, self._walk_call)
        self._input: StreamContent | None = None
        self._conditional_depth = 0

    def walk_script(self, text: str, stdin: StreamContent | None = None) -> None:
        """Judge a script: the command itself, or a text that the command runs as a script."""
        if has_hole(text):
            self._state.mark_unclear(text, "the text that is run is not known")
            return
        root = parse(text)
        if isinstance(root, str) or self._depth.is_at_limit:
            self._state.mark_unclear(text, root if isinstance(root, str) else TOO_DEEP_REASON)
            return
        self._state.variables.collect(root)
        with self._depth.nest():
            self._walk_children(root, stdin)

    def _walk_children(self, node: Node, stdin: StreamContent | None = None) -> StreamContent:
        streams = []
        for child, after in pairwise((*node.children, None)):
            if child is not None and child.is_named:
                with self._in_subshell(when=after is not None and after.type == "&"):
                    streams.append(self._walk_statement(child, stdin))
        return _join_streams(streams)

    def _walk_statement(self, node: Node, stdin: StreamContent | None = None) -> StreamContent:
        state, streams = self._state, []
        possible_cwds: list[tuple[str, ...] | None] = []
        skipped = False
        for index, step in enumerate(split_steps(node)):
            if step.operator == "&&" and state.cwds_on_success is not None:
                state.cwds = state.cwds_on_success
            if step.operator == "||" or skipped:
                state.add_directories(*possible_cwds)
            skipped = step.operator == "||"
            with self._conditionally(when=index > 0):
                streams.append(self._walk_step(step, stdin))
            possible_cwds.append(state.cwds)
        # Any of these pipelines may have been the last one that ran.
        state.add_directories(*possible_cwds)
        return _join_streams(streams)

    def _walk_step(self, step: PipelineStep, stdin: StreamContent | None) -> StreamContent:
        if len(step.stages) == 1:
            return self._walk_stage(step.stages[0], stdin)
        stream = stdin
        for stage in step.stages:
            with self._in_subshell():
                stream = self._walk_stage(stage, stream)
        return stream or StreamContent()

    def _walk_stage(self, stage: PipelineStage, stdin: StreamContent | None) -> StreamContent:
        stdin = self._walk_redirections(stage.redirects, stdin)
        if stage.node.type == "command":
            return self._walk_command(stage.node, stdin)
        return self._walk_compound(stage.node, stdin)

    def _walk_redirections(self, nodes: Sequence[Node], stdin: StreamContent | None) -> StreamContent | None:
        """Note the files of redirections. Return the input of the command."""
        redirect = read_redirections(nodes, self._words)
        for node in redirect.nested:
            self._walk_words(node)
        for field in redirect.reads:
            self._state.touch(field, "read")
        for field in redirect.writes:
            self._state.touch(field, "write")
        return redirect.stdin or stdin

    def _walk_compound(self, node: Node, stdin: StreamContent | None) -> StreamContent:
        match node.type:
            case "subshell" | "command_substitution" | "process_substitution":
                with self._in_subshell():
                    return self._walk_children(node, stdin)
            case "compound_statement" | "negated_command" | "do_group" | "program":
                return self._walk_children(node, stdin)
            case "while_statement" | "for_statement" | "c_style_for_statement":
                self._walk_loop(node, stdin)
            case "if_statement" | "case_statement" | "elif_clause" | "else_clause" | "case_item":
                self._walk_branches(node, stdin)
            case "function_definition":
                self._walk_function(node)
            case "variable_assignment":
                self._walk_assignment(node)
                self._note_overwritten(node)
            case "test_command":
                self._check_test(node)
                self._walk_words(node)
            case "declaration_command" | "unset_command":
                self._walk_declaration(node)
            case _:
                self._walk_words(node)
        return StreamContent()

    def _walk_words(self, node: Node) -> None:
        """Judge the commands that run inside of words."""
        if node.type in _SUBSTITUTIONS:
            with self._in_subshell():
                self._walk_children(node)
            return
        if node.type == "expansion":
            self._check_expansion(node)
        if node.type in _ARITHMETIC or (
            node.type == "expansion" and any(child.type == ":" for child in node.children)
        ):
            self._check_arithmetic(node)
        if node.type == "array":
            self._check_array_keys(node)
        for child in node.named_children:
            if child.children:
                self._walk_words(child)

    def _check_expansion(self, node: Node) -> None:
        types = {child.type for child in node.children}
        prefix, name, *rest = node.children[1:]
        lists_keys = (rest and rest[0].type in ("@", "*")) or name.text.endswith(("[@]", "[*]"))
        if prefix.type == "!" and not lists_keys:
            self._state.mark_unclear(node.text, "a variable refers to another one by name")
        if "P" in types:  # ${name@P}
            self._state.mark_unclear(node.text, "the content of the variable is run")
        if not types.isdisjoint({"=", ":="}):
            self._invocations.assign(node.named_children[0].text, mark_unknown(node.text))

    def _check_arithmetic(self, node: Node) -> None:
        """Mark arithmetic as unclear unless its operands are known to be numbers."""
        children = node.named_children
        for child in children[1:] if node.type in ("subscript", "expansion") else children:
            if child.type == "variable_name":
                is_safe = names_safe_number(child.text, self._state)
            else:
                is_safe = all(is_safe_number(value, self._state) for value in self._words.list_values(child))
            if not is_safe:
                self._state.mark_unclear(node.text, _UNKNOWN_OPERAND)

    def _check_array_keys(self, node: Node) -> None:
        """Check the keys of array elements, which are evaluated as arithmetic unless declared otherwise."""
        for child in node.named_children:
            key = _ARRAY_KEY.match(child.text)
            if key is not None and not is_safe_number(key[1], self._state):
                self._state.mark_unclear(node.text, _UNKNOWN_OPERAND)

    def _check_test(self, node: Node) -> None:
        """Mark a test as unclear if it may run something.

        `[[ … ]]` evaluates both sides of some operators as arithmetic, and `-v` evaluates its operand.
        """
        double = node.children[0].type == "[["
        for before, middle, after in zip(node.children, node.children[1:], node.children[2:], strict=False):
            sides = [before, after] if double and middle.text in _NUMERIC_COMPARISONS else []
            operators = (
                [before.text] if double else self._words.list_values(before) if before.is_named else []
            )
            sides += (
                [middle]
                if any(isinstance(each, str) and takes_variable_name(each) for each in operators)
                else []
            )
            for side in sides:
                if not all(is_safe_number(value, self._state) for value in self._words.list_values(side)):
                    self._state.mark_unclear(node.text, _UNKNOWN_OPERAND)

    def _walk_loop(self, node: Node, stdin: StreamContent | None) -> None:
        before = self._state.cwds
        if (variable := node.child_by_field_name("variable")) is not None:
            self._invocations.assign(variable.text, mark_unknown("each of them"))
        loop_variable = variable.text if variable is not None and node.children_by_field_name("value") else ""
        bound_listing = self._state.variables.bind_listing(
            _find_read_variable(node), (stdin or StreamContent()).listing
        )
        with bound_listing, self._state.variables.overwrite_in_loop(loop_variable):
            self._walk_branches(node, stdin)
            if self._state.cwds != before:
                # Each iteration leads further.
                self._state.cwds = None
                self._walk_branches(node, stdin)

    def _walk_branches(self, node: Node, stdin: StreamContent | None) -> None:
        for child in node.named_children:
            before = self._state.cwds
            with self._conditionally():
                self._walk_statement(child, stdin)
            if self._state.cwds != before:
                self._state.add_directories(before)

    def _walk_function(self, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            self._walk_words(node)
            return
        self._functions[name.text] = body
        with self._in_subshell():
            self._walk_statement(body)
        redirects = [child for child in node.named_children if child.type.endswith("_redirect")]
        if self._walk_redirections(redirects, None) is not None:
            self._state.mark_unclear(node.text, "its input does not come from its caller")

    def _walk_call(self, name: str, stdin: StreamContent | None) -> bool:
        """Judge the function of this name once more, in the state of the caller. Return False if there is none."""
        if name in self._functions and not self._depth.is_at_limit:
            with self._depth.nest():
                self._walk_statement(self._functions[name], stdin)
        return name in self._functions

    def _walk_assignment(self, node: Node) -> None:
        self._walk_words(node)
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return
        values = [""] if value is None else self._words.list_values(value)
        for each in values:
            text = each if isinstance(each, str) else node.text
            self._invocations.assign(name.text, text)

    def _note_overwritten(self, node: Node) -> None:
        """Note that an unconditional assignment at the top level replaces all earlier values of the variable."""
        name = node.child_by_field_name("name")
        if name is not None and not self._conditional_depth and self._depth.level == 1:
            self._state.variables.overwrite(name.text)

    def _walk_declaration(self, node: Node) -> None:
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._walk_assignment(child)
            elif node.type == "declaration_command" and child.type not in ("variable_name", "word"):
                self._declare_words(child)
        self._walk_words(node)
        fields = [field for child in node.named_children for field in self._expand_declared(child)]
        examine_builtin(node.children[0].text, tuple(fields), self._state)

    def _expand_declared(self, node: Node) -> list[Field]:
        """Return the words that a part of a declaration may expand to."""
        if node.type == "variable_assignment":
            return [Field(node.text)]
        return [field for expansion in self._words.list_expansions(node) for field in expansion]

    def _declare_words(self, node: Node) -> None:
        """Judge `export "$name=$value"`, where the declaration is composed first."""
        for value in self._words.list_values(node):
            name, equals, text = (
                value.partition("=") if isinstance(value, str) else (mark_unknown(""), "=", "")
            )
            if equals or has_hole(name):
                self._invocations.assign(name, text)

    def _walk_command(self, node: Node, stdin: StreamContent | None) -> StreamContent:
        for child in node.children:
            if child.type == "variable_assignment" and not _sets_only_ifs(child, node):
                self._walk_assignment(child)
        stdin = self._walk_redirections(
            [child for child in node.children if child.type.endswith("_redirect")], stdin
        )
        words = [child for child in node.children if child.field in ("name", "argument")]
        for word in words:
            self._walk_words(word)
        return self._judge_expansions(words, stdin or self._input)

    def _judge_expansions(self, nodes: list[Node], stdin: StreamContent | None) -> StreamContent:
        lines = expand_command(nodes, self._words)
        if lines is None:
            self._state.mark_unclear(
                " ".join(node.text for node in nodes), "it has too many possible expansions"
            )
            return StreamContent()
        streams = []
        for line in lines:
            argv = tuple(word.field for word in line)
            if argv[-1].text == "exec" and {field.text for field in argv} <= {"exec", "command", "builtin"}:
                # From here on, the shell itself reads this input.
                self._input = stdin
            self._invocations.judge(argv, list_line_actions(line), stdin)
            is_function = argv[0].text in self._functions
            streams.append(StreamContent() if is_function else predict_output(argv, self._state, stdin))
        return streams[0] if len(streams) == 1 else StreamContent()

    @contextmanager
    def _in_subshell(self, *, when: bool = True) -> Iterator[None]:
        """Walk in a subshell: its changes of directory do not affect the rest."""
        cwds, on_success = self._state.cwds, self._state.cwds_on_success
        with self._conditionally(when=when):
            yield
        if when:
            self._state.cwds, self._state.cwds_on_success = cwds, on_success

    @contextmanager
    def _conditionally(self, *, when: bool = True) -> Iterator[None]:
        """Walk commands that may not run at all, or not in the current shell."""
        self._conditional_depth += when
        yield
        self._conditional_depth -= when


def _join_streams(streams: list[StreamContent]) -> StreamContent:
    """Return the combined output of several commands."""
    if len(streams) == 1:
        return streams[0]
    texts = [stream.text for stream in streams if stream.text is not None]
    return StreamContent(text="\n".join(texts)) if len(texts) == len(streams) else StreamContent()


def _sets_only_ifs(assignment: Node, command: Node) -> bool:
    """Return True for `IFS= read name`, which only affects how one line is split."""
    name = command.child_by_field_name("name")
    return name is not None and name.text == "read" and assignment.text in ("IFS=", "IFS=,", "IFS=:")


def _find_read_variable(node: Node) -> str:
    """Return the variable of `while read name`, or ""."""
    condition = node.child_by_field_name("condition")
    words = condition.text.split() if condition is not None else []
    words = words[1:] if words[:1] == ["IFS="] else words
    names = [word for word in words[1:] if not word.startswith("-")]
    return names[0] if words[:1] == ["read"] and len(names) == 1 else ""
