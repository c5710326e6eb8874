"""A smaller program that still differs: statements are left out, large ones first, as long as it does."""

import ast
import time


def minimised(source, differs, seconds=40):
    """The source with as few statements as can be found in that time; `differs` says whether a source still does."""
    deadline = time.monotonic() + seconds
    size = None
    while size != len(source) and time.monotonic() < deadline:
        size = len(source)
        source = _smaller(source, differs, deadline)
    return source


def _smaller(source, differs, deadline):
    """One round through all statements, the outer ones first, many at a time before one at a time."""
    for at_once in (27, 9, 3, 1):
        place = 0
        while place < _n_statements(source) and time.monotonic() < deadline:
            tried = _without(source, place, at_once)
            if tried is not None and tried != source and differs(tried):
                source = tried
            else:
                place += at_once
    return source


def _n_statements(source):
    return len(_places(ast.parse(source)))


def _places(tree):
    """(the list that a statement is in, the statement) for those that may be left out: what is inside functions."""
    inside = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "program"]
    return [
        (body, statement)
        for function in inside
        for node in ast.walk(function)
        for body in _bodies(node)
        for statement in body
        if not isinstance(statement, ast.Pass)
    ]


def _bodies(node):
    named = (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
    return [body for body in named if isinstance(body, list)]


def _without(source, first, n):
    """The source without these statements; None if it is no program then."""
    tree = ast.parse(source)
    for body, statement in _places(tree)[first : first + n]:
        if statement in body:
            body.remove(statement)
        if not body:
            body.append(ast.Pass())
    try:
        text = ast.unparse(tree) + "\n"
        compile(text, "<smaller>", "exec")
    except (SyntaxError, ValueError):
        return None
    return text
