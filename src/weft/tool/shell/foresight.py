"""What words will be when the command runs, as far as that can be foreseen."""

from collections.abc import Collection, Sequence
from itertools import product
from math import prod
from typing import Final

from weft.model.permission import hole
from weft.tool.shell.field import Field, Number, Reading, Value
from weft.tool.shell.naming import Word
from weft.tool.shell.places import expand
from weft.tool.shell.program.listing import output
from weft.tool.shell.scene import Feed, Scene
from weft.tool.shell.steps import Stage, steps_of
from weft.tool.shell.tree import Node, text_of
from weft.tool.shell.words import Words

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
