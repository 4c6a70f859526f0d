"""Small wrong changes of a function, as a slip of the pen makes them.

A change replaces one node of the function's syntax tree. The kinds are the usual ones of mutation
testing: a comparison's bound or sense, a condition's sense, `and` for `or`, `+` for `-`, a
number that is one too large, the other truth value, `min` for `max`, and a statement that is left
out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef

_BOUND: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_SENSE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATION: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
# Fields that decide nothing: types, and what stands before a function.
_SPARED = {"annotation", "returns", "decorator_list", "type_params"}
_LEFT_OUT = (ast.Raise, ast.AugAssign, ast.Delete, ast.Continue, ast.Break)


@dataclass(frozen=True, slots=True)
class Change:
    """The change *number* of a function, at *line* of its file: the statement that *was* there, or
    the expression that begins it, *becomes* another one.
    """

    number: int
    line: int
    was: str
    becomes: str


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a node stands: the *field* of *parent*, and the place in it where it is a list; and the
    statement *around* it, or the expression that begins this.
    """

    parent: ast.AST
    field: str
    index: int | None
    around: ast.expr | ast.stmt

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Yield each function and method of a module by its qualified name; those within functions
    belong to these.
    """
    yield from _functions_of(tree.body, "")


def changes(function: Function) -> list[Change]:
    """Return all changes of *function*, in the order of their numbers."""
    return [
        Change(number, node.lineno, *_shown(place, node, becomes))
        for number, (place, node, becomes) in enumerate(_all(function))
    ]


def change(function: Function, number: int) -> None:
    """Make the change *number* of *function*, in place."""
    for each, (place, _, becomes) in enumerate(_all(function)):
        if each == number:
            place.put(becomes)
            return
    raise IndexError(f"{function.name} has no change {number}")


def _functions_of(body: list[ast.stmt], before: str) -> Iterator[tuple[str, Function]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield before + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions_of(node.body, f"{before}{node.name}.")


def _all(function: Function) -> Iterator[tuple[_Place, ast.expr | ast.stmt, ast.AST]]:
    for place, node in _nodes(function, "body"):
        for becomes in _alternatives(place, node):
            yield place, node, ast.fix_missing_locations(ast.copy_location(becomes, node))


def _nodes(
    parent: ast.AST, *fields: str, around: ast.expr | ast.stmt | None = None
) -> Iterator[tuple[_Place, ast.expr | ast.stmt]]:
    """Yield each expression and statement below *parent*, and its place."""
    for field in fields or parent._fields:
        value = getattr(parent, field, None)
        if field in _SPARED:
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            whole = around
            if isinstance(node, ast.stmt) or (whole is None and isinstance(node, ast.expr)):
                whole = node
            if isinstance(node, ast.expr | ast.stmt) and whole is not None:
                yield _Place(parent, field, index, whole), node
            if isinstance(node, ast.AST):
                # What begins a compound statement is shown without what follows.
                is_compound = isinstance(node, ast.stmt) and hasattr(node, "body")
                yield from _nodes(node, around=None if is_compound else whole)


def _alternatives(place: _Place, node: ast.expr | ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=[operator]):
            for table in (_BOUND, _SENSE):
                if type(operator) in table:
                    yield ast.Compare(node.left, [table[type(operator)]()], node.comparators)
        case ast.BoolOp(op=ast.And()):
            yield ast.BoolOp(ast.Or(), node.values)
        case ast.BoolOp():
            yield ast.BoolOp(ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp(op=sign) if type(sign) in _OPERATION:
            yield ast.BinOp(node.left, _OPERATION[type(sign)](), node.right)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Name(id=name) if name in _NAMES and place.field == "func":
            yield ast.Name(_NAMES[name], ast.Load())
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name("super"))))):
            # Without it the function would not even be of the same kind.
            pass
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name("log"), attr="debug"))):
            # A record for debugging decides nothing, and no test looks for it.
            pass
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.stmt() if isinstance(node, _LEFT_OUT):
            yield ast.Pass()
    if _is_condition(place) and isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Await):
        yield ast.UnaryOp(ast.Not(), node)


def _is_condition(place: _Place) -> bool:
    """Whether what stands there is taken for true or false. (What `and` and `or` join may be
    values; it counts all the same.)
    """
    return place.field == "test" or isinstance(place.parent, ast.BoolOp) or place.field == "ifs"


def _shown(place: _Place, node: ast.AST, becomes: ast.AST) -> tuple[str, str]:
    """Return what stands *around* a change before and after it."""
    if place.around is node:
        return _text(node), _text(becomes)
    was = _text(place.around)
    place.put(becomes)
    after = _text(place.around)
    place.put(node)
    return was, after


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())
