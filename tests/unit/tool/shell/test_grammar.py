"""Parse shell text: every character belongs to a node, or the text is refused."""

from collections.abc import Iterator

import pytest

from weft.tool.shell.grammar import parse
from weft.tool.shell.lexer import Node


def tree_of(text: str) -> Node:
    root = parse(text)
    assert not isinstance(root, str), root
    return root


def list_nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from list_nodes(child)


def texts(text: str, type: str) -> list[str]:
    return [node.text for node in list_nodes(tree_of(text)) if node.type == type]


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("cat <<E\n $(touch P)\nE", ["$(touch P)"]),
        ("cat <<'E'\n $(touch P)\nE", []),
        ("cat <<\\E\n $(touch P)\nE", []),
        ("cat <<-E\n\t`touch P`\n\tE", ["`touch P`"]),
        ("cat <<A <<'B'\n$(a)\nA\n$(b)\nB", ["$(a)"]),
        ("cat <<E\n\\$(touch P) $ $(ls)\nE", ["$(ls)"]),
        ('echo "$ $(touch P)"', ["$(touch P)"]),
        ("echo ${PWD# `touch P`}", ["`touch P`"]),
        ("echo ${x:-'$(touch P)'}", []),
        ('echo "${x:-"$(touch P)"}"', ["$(touch P)"]),
        ("echo $(( $(a) + b[$(c)] ))", ["$(a)", "$(c)"]),
        ("echo '$(touch P)' \\$\\(touch P\\)", []),
        ("echo # $(touch P)", []),
        ("echo a#$(touch P)", ["$(touch P)"]),
        ("[[ a =~ ^($(b)|c)$ ]]", ["$(b)"]),
        ("case $(a) in $(b)) $(c);; esac", ["$(a)", "$(b)", "$(c)"]),
    ],
)
def test_commands_inside_words_are_found(text: str, run: list[str]) -> None:
    assert texts(text, "command_substitution") == run


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"r"\\m a.txt', ['"r"\\m', "a.txt"]),
        ('cat "."\\env', ["cat", '"."\\env']),
        ("{rm,-f,x}", ["{rm,-f,x}"]),
        ("2>x ls 3 >y a", ["ls", "3", "a"]),
        ("a <<E b | c\nE\nd", ["a", "b", "c", "d"]),
        ("X=1 ls X=3", ["X", "ls", "X=3"]),
        ("ls a\\ b $'c d' \"e f\"", ["ls", "a\\ b", "$'c d'", '"e f"']),
        ("ls \\\n  a", ["ls", "a"]),
    ],
)
def test_words_end_where_the_shell_ends_them(text: str, words: list[str]) -> None:
    assert [node.text for node in list_nodes(tree_of(text)) if node.field in ("name", "argument")] == words


@pytest.mark.parametrize(
    "text",
    [
        "cat <<$A\n$(touch P)\n$A",
        "cat <<E\nno end",
        "cat <<E\na\\\nE\nb\nE",
        "cat <<E $(ls\n)\nE",
        "echo \"${x:-'$(touch P)'}\"",
        "echo ${x:-<(touch P)}",
        "echo a<(ls)",
        "echo $\\\n(touch P)",
        "echo $[1]",
        "echo $'\\x{72}m'",
        "echo $'\\xe9'",
        "echo `a \\` b`",
        "echo @(a|b)",
        "echo $((a b))",
        "echo $(( 'a' ))",
        "echo ${x",
        "echo ${x!}",
        'echo "$$(touch P)"',
        'echo "$${x}"',
        'echo "a',
        "echo 'a",
        "echo a\\",
        "a[$(x)",
        "exec {x}<y",
        "echo >!x",
        "time X=1",
        "coproc X { ls; }",
        "if ls; then",
        "for x in a; ls; done",
        "ls ;; ls",
        "ls && ",
        "ls | ; ls",
        "(ls",
        "ls }; }",
        "f() ls",
        "A=1 export B",
        "[ a",
        "a=([$x]=1)",
    ],
)
def test_ambiguous_syntax_is_not_parsed(text: str) -> None:
    assert isinstance(parse(text), str)


def test_the_text_of_a_node_is_its_source() -> None:
    text = 'echo "🎉 ¦ done" > 中文/Ж.txt && rm 🧶 ñ'
    root = tree_of(text)
    assert root.text == text
    (both,) = root.named_children
    assert [child.text for child in both.children] == ['echo "🎉 ¦ done" > 中文/Ж.txt', "&&", "rm 🧶 ñ"]
    right = both.named_children[1]
    name = right.child_by_field_name("name")
    assert name is not None
    assert name.text == "rm"
    assert [child.text for child in right.children_by_field_name("argument")] == ["🧶", "ñ"]
