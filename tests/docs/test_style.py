# SPDX-License-Identifier: MIT
"""House style that no linter has: complexity with comprehensions counted, sizes, how docstrings begin, and where fields
are explained.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from radon.complexity import cc_visit
from radon.visitors import Class

from tests import REPOSITORY

FOLDERS = ("agent", "backends", "tasks", "simulator")
SOURCES = [path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py")]
# A smoke alarm: a function that is a list of cases may come close to it; one above it does two things.
MAX_COMPLEXITY = 20
TESTS = sorted((REPOSITORY / "tests").rglob("*.py"))
MAX_LINES_OF_TESTS = 400
NOUN_PHRASES = frozenset(
    (
        "The",
        "A",
        "An",
        "What",
        "Whether",
        "Which",
        "Who",
        "How",
        "Why",
        "Where",
        "One",
        "All",
        "Every",
        "Those",
    )
)


def test_no_function_is_too_complex() -> None:
    """Radon counts the conditions of comprehensions, which ruff does not; in tests each assertion, too."""
    found = {}
    for path in (*SOURCES, *TESTS):
        for block in cc_visit(path.read_text()):
            for function in block.methods if isinstance(block, Class) else [block]:
                if function.complexity > MAX_COMPLEXITY:
                    found[f"{path.relative_to(REPOSITORY)} {function.name}"] = function.complexity
    assert found == {}


def test_no_file_of_tests_has_two_subjects() -> None:
    found = {str(path.relative_to(REPOSITORY)): path.read_text().count("\n") for path in TESTS}
    assert {name: lines for name, lines in found.items() if lines > MAX_LINES_OF_TESTS} == {}


def test_docstrings_of_public_functions_say_what_the_function_does() -> None:
    """`Return the members who lose access.`, not `The members who lose access.`"""
    begin_otherwise = [
        f"{path.relative_to(REPOSITORY)}:{function.lineno} {function.name}"
        for path in SOURCES
        for function in _public_functions(ast.parse(path.read_text()))
        if ((ast.get_docstring(function) or "").split() or [""])[0] in NOUN_PHRASES
    ]
    assert begin_otherwise == []


def test_fields_are_explained_at_the_fields() -> None:
    """A comment above the field, not "`since`: when it began" in the docstring of its class."""
    explained = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno} {node.name}.{field}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for field in _fields(node)
        if f"`{field}`" in (ast.get_docstring(node) or "")
    ]
    assert explained == []


def _fields(node: ast.ClassDef) -> list[str]:
    return [
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]


def _public_functions(node: ast.AST) -> Iterator[ast.FunctionDef]:
    """Properties are excepted: they are described as what they hold."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from _public_functions(child)
        elif (
            isinstance(child, ast.FunctionDef) and not child.name.startswith("_") and not _is_property(child)
        ):
            yield child


def _is_property(function: ast.FunctionDef) -> bool:
    return any("property" in ast.dump(decorator) for decorator in function.decorator_list)
