"""Walk through a command as the shell would, and note all that it may do."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise, product
from math import prod
from typing import Final

from msgspec import Struct

from weft.model.permission import hole
from weft.tool.shell.arithmetic import is_countable, names_countable
from weft.tool.shell.field import Field, Number, Reading, Value, has_hole
from weft.tool.shell.lexer import Node, text_of
from weft.tool.shell.naming import Word, name_line
from weft.tool.shell.parse import parse
from weft.tool.shell.places import expand
from weft.tool.shell.program.builtins import look_at_builtin, takes_name
from weft.tool.shell.program.listing import output
from weft.tool.shell.redirect import redirects_of
from weft.tool.shell.running import TOO_DEEP, Depth, Running
from weft.tool.shell.scene import Feed, Scene
from weft.tool.shell.words import Words


class Stage(Struct, frozen=True):
    """A command of a pipeline, with the redirections that stand around it."""

    node: Node
    redirects: tuple[Node, ...] = ()


class Step(Struct, frozen=True):
    """A pipeline, and what joins it to the one before."""

    operator: str
    stages: tuple[Stage, ...]


def steps_of(node: Node, redirects: tuple[Node, ...] = ()) -> list[Step]:
    match node.type:
        case "list":
            return _list(node, redirects)
        case "pipeline":
            return _pipeline(node, redirects)
        case "redirected_statement":
            return _redirected(node, redirects)
        case "variable_assignments":
            return [Step("", (Stage(child),)) for child in node.named_children]
        case _:
            return [Step("", (Stage(node, redirects),))]


def _list(node: Node, redirects: tuple[Node, ...]) -> list[Step]:
    steps: list[Step] = []
    operator = ""
    for child in node.children:
        if not child.is_named:
            operator = child.type
            continue
        found = steps_of(child, redirects if child is node.children[-1] else ())
        steps += _joined(operator, found)
    return steps


def _pipeline(node: Node, redirects: tuple[Node, ...]) -> list[Step]:
    stages = node.named_children
    steps: list[Step] = []
    for place, child in enumerate(stages):
        found = steps_of(child, redirects if place == len(stages) - 1 else ())
        steps = _piped(steps, found) if steps else found
    return steps


def _redirected(node: Node, redirects: tuple[Node, ...]) -> list[Step]:
    body = node.child_by_field_name("body")
    own = tuple(child for child in node.named_children if child.type.endswith("_redirect"))
    return steps_of(body, (*own, *redirects)) if body is not None else []


def _piped(steps: list[Step], more: list[Step]) -> list[Step]:
    if not steps or not more:
        return [*steps, *more]
    joined = Step(steps[-1].operator, (*steps[-1].stages, *more[0].stages))
    return [*steps[:-1], joined, *more[1:]]


def _joined(operator: str, steps: list[Step]) -> list[Step]:
    return [Step(operator, steps[0].stages), *steps[1:]] if steps else []


MOST_READINGS: Final = 16


def read_lines(nodes: Sequence[Node], words: Words) -> list[list[Word]] | None:
    """Every way a command may turn out, but for those of no words; None when there are too many to look at."""
    choices = [_choices(node, words) for node in nodes]
    if prod(map(len, choices)) > MOST_READINGS:
        return None
    lines = [[word for part in reading for word in part] for reading in product(*choices)]
    return [line for line in lines if line]


def _choices(node: Node, words: Words) -> list[list[Word]]:
    source = text_of(node)
    return [
        [Word(field, source if len(reading) == 1 else field.text) for field in reading]
        for reading in words.readings(node)
    ]


def foresee(scene: Scene, functions: Collection[str]) -> Words:
    """Reads words where things stand in a scene. What one of these functions puts out is not known."""
    foresight = _Foresight(scene, functions)
    scene.lookup = foresight.words.lookup
    return foresight.words


class _Foresight:
    def __init__(self, scene: Scene, functions: Collection[str]) -> None:
        self._scene = scene
        self._functions = functions
        self.words = Words(lookup=self._lookup, output=self._output, home=scene.where.home)

    def _lookup(self, name: str) -> Sequence[Value] | None:
        if name == "PWD":
            return self._scene.cwds
        return self._scene.variables.lookup(name, self._values)

    def _values(self, node: Node, in_loop: bool) -> list[Value]:
        if not in_loop:
            return self.words.values(node)
        return [
            value
            for reading in self.words.readings(node)
            for field in reading
            for value in self._each_of(field)
        ]

    def _each_of(self, field: Field) -> list[Value]:
        if field.listing is not None:
            return [field.listing]
        if field.is_number:
            return [Number.SOME]
        if not field.wild:
            return [field.text]
        if self._scene.cwds is None or "**" in field.wild:
            return [hole(field.text)]
        return [name for cwd in self._scene.cwds for name in expand(field.wild, cwd) or [hole(field.text)]]

    def _output(self, node: Node) -> list[Value] | None:
        """What a substitution puts in the place of itself, if it is a single pipeline that can be foreseen."""
        statements = node.named_children
        steps = steps_of(statements[0]) if len(statements) == 1 else []
        if len(steps) != 1:
            return None
        feed: Feed | None = None
        for stage in steps[0].stages:
            argv = self._argv(stage)
            if argv is None or (argv and argv[0].text in self._functions):
                return None
            feed = output(argv, self._scene, feed)
        return None if feed is None else _to_values(feed)

    def _argv(self, stage: Stage) -> Reading | None:
        """The words of a plain command, if there is only one way to read them."""
        node = stage.node
        if node.type != "command" or stage.redirects:
            return None
        words = [child for child in node.children if child.field in ("name", "argument")]
        others = [child for child in node.children if child.field not in ("name", "argument")]
        # What it reads does not change that `wc` puts out a number.
        if others and (words[:1] == [] or text_of(words[0]) != "wc" or not all(map(_is_input, others))):
            return None
        readings = list(product(*(self.words.readings(word) for word in words)))
        return tuple(field for part in readings[0] for field in part) if len(readings) == 1 else None


def _is_input(node: Node) -> bool:
    return node.type == "file_redirect" and node.children[0].type == "<"


def _to_values(feed: Feed) -> list[Value] | None:
    if feed.number:
        return [Number.SOME]
    if feed.listing is not None:
        return [feed.listing]
    return None if feed.text is None else [feed.text.rstrip("\n")]


_SUBSTITUTIONS: Final = frozenset({"command_substitution", "process_substitution"})
_COUNTED: Final = frozenset({"arithmetic_expansion", "arithmetic_command", "subscript"})
_KEY: Final = re.compile(r"\[['\"]?([^\]'\"]*)")
_COMPARING: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_COUNTED_WITH: Final = "what is counted with is known only when it runs, and may run something itself"


class Walk:
    """One walk over one command, with all that it runs in its turn."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._functions: dict[str, Node] = {}
        self._words = foresee(scene, self._functions.keys())
        self._depth = Depth()
        self._running = Running(scene, self._depth, self.script, self._call)
        self._input: Feed | None = None
        self._maybe = 0

    def script(self, text: str, stdin: Feed | None = None) -> None:
        """Shell text, at the top or within something that runs it."""
        if has_hole(text):
            self._scene.unclear(text, "the text that is run is not known")
            return
        root = parse(text)
        if isinstance(root, str) or self._depth.is_reached:
            self._scene.unclear(text, root if isinstance(root, str) else TOO_DEEP)
            return
        self._scene.variables.collect(root)
        with self._depth.deeper():
            self._each(root, stdin)

    def _each(self, node: Node, stdin: Feed | None = None) -> Feed:
        feeds = []
        for child, after in pairwise((*node.children, None)):
            if child is not None and child.is_named:
                with self._apart(if_so=after is not None and after.type == "&"):
                    feeds.append(self._statement(child, stdin))
        return _together(feeds)

    def _statement(self, node: Node, stdin: Feed | None = None) -> Feed:
        scene, feeds = self._scene, []
        ends: list[tuple[str, ...] | None] = []
        skipped = False
        for place, step in enumerate(steps_of(node)):
            if step.operator == "&&" and scene.landed is not None:
                scene.cwds = scene.landed
            if step.operator == "||" or skipped:
                scene.stay(*ends)
            skipped = step.operator == "||"
            with self._perhaps(if_so=place > 0):
                feeds.append(self._step(step, stdin))
            ends.append(scene.cwds)
        # Any of them may have been the last that was done.
        scene.stay(*ends)
        return _together(feeds)

    def _step(self, step: Step, stdin: Feed | None) -> Feed:
        if len(step.stages) == 1:
            return self._stage(step.stages[0], stdin)
        feed = stdin
        for stage in step.stages:
            with self._apart():
                feed = self._stage(stage, feed)
        return feed or Feed()

    def _stage(self, stage: Stage, stdin: Feed | None) -> Feed:
        stdin = self._redirect(stage.redirects, stdin)
        if stage.node.type == "command":
            return self._command(stage.node, stdin)
        return self._compound(stage.node, stdin)

    def _redirect(self, nodes: Sequence[Node], stdin: Feed | None) -> Feed | None:
        """Note what redirections do; gives what is read then."""
        redirect = redirects_of(nodes, self._words)
        for node in redirect.nested:
            self._inside(node)
        for field in redirect.reads:
            self._scene.touch(field, "read")
        for field in redirect.writes:
            self._scene.touch(field, "write")
        return redirect.stdin or stdin

    def _compound(self, node: Node, stdin: Feed | None) -> Feed:
        match node.type:
            case "subshell" | "command_substitution" | "process_substitution":
                with self._apart():
                    return self._each(node, stdin)
            case "compound_statement" | "negated_command" | "do_group" | "program":
                return self._each(node, stdin)
            case "while_statement" | "for_statement" | "c_style_for_statement":
                self._loop(node, stdin)
            case "if_statement" | "case_statement" | "elif_clause" | "else_clause" | "case_item":
                self._branches(node, stdin)
            case "function_definition":
                self._define(node)
            case "variable_assignment":
                self._assign(node)
                self._settle(node)
            case "test_command":
                self._test(node)
                self._inside(node)
            case "declaration_command" | "unset_command":
                self._declare(node)
            case _:
                self._inside(node)
        return Feed()

    def _inside(self, node: Node) -> None:
        """Whatever runs within words."""
        if node.type in _SUBSTITUTIONS:
            with self._apart():
                self._each(node)
            return
        if node.type == "expansion":
            self._expand(node)
        if node.type in _COUNTED or (
            node.type == "expansion" and any(child.type == ":" for child in node.children)
        ):
            self._count(node)
        if node.type == "array":
            self._count_keys(node)
        for child in node.named_children:
            if child.children:
                self._inside(child)

    def _expand(self, node: Node) -> None:
        kinds = {child.type for child in node.children}
        prefix, name, *rest = node.children[1:]
        keys = (rest and rest[0].type in ("@", "*")) or name.text.endswith(("[@]", "[*]"))
        if prefix.type == "!" and not keys:
            self._scene.unclear(text_of(node), "a variable names another one")
        if "P" in kinds:  # ${name@P}
            self._scene.unclear(text_of(node), "what is in the variable is run")
        if not kinds.isdisjoint({"=", ":="}):
            self._running.set(text_of(node.named_children[0]), hole(text_of(node)))

    def _count(self, node: Node) -> None:
        """What is counted with must be known to be a number."""
        named = node.named_children
        for child in named[1:] if node.type in ("subscript", "expansion") else named:
            if child.type == "variable_name":
                known = names_countable(text_of(child), self._scene)
            else:
                known = all(is_countable(value, self._scene) for value in self._words.values(child))
            if not known:
                self._scene.unclear(text_of(node), _COUNTED_WITH)

    def _count_keys(self, node: Node) -> None:
        """The keys of an array's elements, which are counted unless it was declared otherwise."""
        for child in node.named_children:
            key = _KEY.match(text_of(child))
            if key is not None and not is_countable(key[1], self._scene):
                self._scene.unclear(text_of(node), _COUNTED_WITH)

    def _test(self, node: Node) -> None:
        """`[[ … ]]` counts on both sides of some operators, and `-v` takes a name that may be counted with."""
        double = node.children[0].type == "[["
        for before, middle, after in zip(node.children, node.children[1:], node.children[2:], strict=False):
            sides = [before, after] if double and text_of(middle) in _COMPARING else []
            operators = [text_of(before)] if double else self._words.values(before) if before.is_named else []
            sides += [middle] if any(isinstance(each, str) and takes_name(each) for each in operators) else []
            for side in sides:
                if not all(is_countable(value, self._scene) for value in self._words.values(side)):
                    self._scene.unclear(text_of(node), _COUNTED_WITH)

    def _loop(self, node: Node, stdin: Feed | None) -> None:
        before = self._scene.cwds
        if (variable := node.child_by_field_name("variable")) is not None:
            self._running.set(text_of(variable), hole("each of them"))
        loop = text_of(variable) if variable is not None and node.children_by_field_name("value") else ""
        reading = self._scene.variables.reading(_read_name(node), (stdin or Feed()).listing)
        with reading, self._scene.variables.settled(loop):
            self._branches(node, stdin)
            if self._scene.cwds != before:
                # It goes further every time round.
                self._scene.cwds = None
                self._branches(node, stdin)

    def _branches(self, node: Node, stdin: Feed | None) -> None:
        for child in node.named_children:
            before = self._scene.cwds
            with self._perhaps():
                self._statement(child, stdin)
            if self._scene.cwds != before:
                self._scene.stay(before)

    def _define(self, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            self._inside(node)
            return
        self._functions[text_of(name)] = body
        with self._apart():
            self._statement(body)
        redirects = [child for child in node.named_children if child.type.endswith("_redirect")]
        if self._redirect(redirects, None) is not None:
            self._scene.unclear(text_of(node), "what it reads does not come from where it is called")

    def _call(self, name: str, stdin: Feed | None) -> bool:
        """A function of the command's own: judged where it was written, and again where it is called from."""
        if name in self._functions and not self._depth.is_reached:
            with self._depth.deeper():
                self._statement(self._functions[name], stdin)
        return name in self._functions

    def _assign(self, node: Node) -> None:
        self._inside(node)
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return
        values = [""] if value is None else self._words.values(value)
        for each in values:
            text = each if isinstance(each, str) else text_of(node)
            self._running.set(text_of(name), text)

    def _settle(self, node: Node) -> None:
        """What is assigned for certain, and for the rest of the command, is all that a variable holds from then on."""
        name = node.child_by_field_name("name")
        if name is not None and not self._maybe and self._depth.now == 1:
            self._scene.variables.settle(text_of(name))

    def _declare(self, node: Node) -> None:
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assign(child)
            elif node.type == "declaration_command" and child.type not in ("variable_name", "word"):
                self._declare_words(child)
        self._inside(node)
        fields = [field for child in node.named_children for field in self._declared(child)]
        look_at_builtin(node.children[0].text, tuple(fields), self._scene)

    def _declared(self, node: Node) -> list[Field]:
        """The words that a part of a declaration may turn out to be."""
        if node.type == "variable_assignment":
            return [Field(text_of(node))]
        return [field for reading in self._words.readings(node) for field in reading]

    def _declare_words(self, node: Node) -> None:
        """`export "$name=$value"`: what is declared is put together first."""
        for value in self._words.values(node):
            name, equals, text = value.partition("=") if isinstance(value, str) else (hole(""), "=", "")
            if equals or has_hole(name):
                self._running.set(name, text)

    def _command(self, node: Node, stdin: Feed | None) -> Feed:
        for child in node.children:
            if child.type == "variable_assignment" and not _only_for_read(child, node):
                self._assign(child)
        stdin = self._redirect([child for child in node.children if child.type.endswith("_redirect")], stdin)
        words = [child for child in node.children if child.field in ("name", "argument")]
        for word in words:
            self._inside(word)
        return self._run_readings(words, stdin or self._input)

    def _run_readings(self, nodes: list[Node], stdin: Feed | None) -> Feed:
        lines = read_lines(nodes, self._words)
        if lines is None:
            self._scene.unclear(" ".join(map(text_of, nodes)), "it could be too many different things")
            return Feed()
        feeds = []
        for line in lines:
            argv = tuple(word.field for word in line)
            if argv[-1].text == "exec" and {field.text for field in argv} <= {"exec", "command", "builtin"}:
                # From here on the shell itself reads from there.
                self._input = stdin
            self._running.run(argv, name_line(line), stdin)
            own = argv[0].text in self._functions
            feeds.append(Feed() if own else output(argv, self._scene, stdin))
        return feeds[0] if len(feeds) == 1 else Feed()

    @contextmanager
    def _apart(self, *, if_so: bool = True) -> Iterator[None]:
        """In a shell of its own: where it goes, nobody follows."""
        cwds, landed = self._scene.cwds, self._scene.landed
        with self._perhaps(if_so=if_so):
            yield
        if if_so:
            self._scene.cwds, self._scene.landed = cwds, landed

    @contextmanager
    def _perhaps(self, *, if_so: bool = True) -> Iterator[None]:
        """Something that may not be done at all, or not by the shell that reads the rest."""
        self._maybe += if_so
        yield
        self._maybe -= if_so


def _together(feeds: list[Feed]) -> Feed:
    """What several put out one after the other."""
    if len(feeds) == 1:
        return feeds[0]
    texts = [feed.text for feed in feeds if feed.text is not None]
    return Feed(text="\n".join(texts)) if len(texts) == len(feeds) else Feed()


def _only_for_read(assignment: Node, command: Node) -> bool:
    """`IFS= read name` changes how this one line is taken apart, and nothing else."""
    name = command.child_by_field_name("name")
    return name is not None and text_of(name) == "read" and text_of(assignment) in ("IFS=", "IFS=,", "IFS=:")


def _read_name(node: Node) -> str:
    """The variable of `while read name`."""
    condition = node.child_by_field_name("condition")
    words = text_of(condition).split() if condition is not None else []
    words = words[1:] if words[:1] == ["IFS="] else words
    names = [word for word in words[1:] if not word.startswith("-")]
    return names[0] if words[:1] == ["read"] and len(names) == 1 else ""
