"""Sizes beyond which code is hard to read. An exception needs a reason, and is dropped when it is no longer needed."""

from __future__ import annotations

import ast
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MODULE_LINES = 600
MODULE_MEDIAN = 200
FUNCTION_LINES = 50
FUNCTION_P90 = 30
FUNCTION_MEDIAN = 10
PARAMETERS = 6
PUBLIC_METHODS = 12
CHAIN = 2

LARGE_MODULES: Mapping[str, str] = {
    "agent_image/mailboat/errors.py": "a catalogue: what each error means and what to do next",
}
LONG_FUNCTIONS: Mapping[str, str] = {}
MANY_PARAMETERS: Mapping[str, str] = {}
MANY_METHODS: Mapping[str, str] = {
    "agent_image/mailboat/api/archive.py:Archive": "a port: one method for each command on what is stored",
    "agent_image/mailboat/api/control.py:Control": "a port: one method for each verb",
    "agent_image/mailboat/api/job_control.py:JobControl": "a port: one method for each command on jobs",
    "agent_image/mailboat/jobs/job_queue.py:Queue": "one state machine: limits, order and counts of a queue",
    "agent_image/mailboat/jobs/table.py:JobTable": "columns, not records: one method reads each",
    "agent_image/mailboat/content/targets/tree_table.py:TreeTable": "one table: a statement each, the target decides",
}


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function from its `def` on, without its docstring."""
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


def is_declaration(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is a command line's signature: the framework reads one parameter for each option."""
    return any("command" in ast.unparse(item) or "callback" in ast.unparse(item) for item in function.decorator_list)


def public_methods(one: ast.ClassDef) -> list[str]:
    """Names of the methods that are for callers; what is a property reads like an attribute."""
    methods = [item for item in one.body if isinstance(item, ast.FunctionDef) and item.name[0] != "_"]
    return [item.name for item in methods if "property" not in map(ast.unparse, item.decorator_list)]


def compare(found: Mapping[str, str], allowed: Mapping[str, str]) -> list[str]:
    """What is too large without an exception, and exceptions that nothing needs any more."""
    return [f"{key}: {what}" for key, what in found.items() if key not in allowed] + [
        f"{key}: the exception is not needed any more" for key in allowed if key not in found
    ]


def test_no_module_is_longer_than_the_alarm(product: Any, tools: Any) -> None:
    found = {item.name: f"{len(item.lines)} lines" for item in [*product, *tools] if len(item.lines) > MODULE_LINES}
    assert compare(found, LARGE_MODULES) == []


def test_the_median_module_is_short(product: Any) -> None:
    assert statistics.median(len(module.lines) for module in product if module.lines) <= MODULE_MEDIAN


def test_no_function_is_longer_than_the_alarm(product: Any, tools: Any) -> None:
    found = {
        f"{module.name}:{name}": f"{body_lines(function)} lines"
        for module in [*product, *tools]
        for name, function in module.functions()
        if body_lines(function) > FUNCTION_LINES
    }
    assert compare(found, LONG_FUNCTIONS) == []


def test_most_functions_are_short(product: Any) -> None:
    lengths = sorted(body_lines(function) for module in product for _, function in module.functions())
    assert statistics.median(lengths) <= FUNCTION_MEDIAN
    assert lengths[int(len(lengths) * 0.9)] <= FUNCTION_P90


def test_functions_take_few_parameters(product: Any, tools: Any) -> None:
    found = {}
    for module in [*product, *tools]:
        for name, function in module.functions():
            taken = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            count = len([item for item in taken if item.arg not in {"self", "cls"}])
            if count > PARAMETERS and not is_declaration(function):
                found[f"{module.name}:{name}"] = f"{count} parameters: make a settings record"
    assert compare(found, MANY_PARAMETERS) == []


def test_classes_have_few_public_methods(product: Any) -> None:
    # an adapter has all the methods of its port, which is counted itself; what it adds is its own
    ports = [
        class_ for module in product for class_ in module.classes() if "Protocol" in map(ast.unparse, class_.bases)
    ]
    promised = {name for port in ports for name in public_methods(port)}
    found = {}
    for module in product:
        for class_ in module.classes():
            public = [name for name in public_methods(class_) if class_ in ports or name not in promised]
            if len(public) > PUBLIC_METHODS and not class_.name.endswith("Contract"):
                found[f"{module.name}:{class_.name}"] = f"{len(public)} public methods"
    assert compare(found, MANY_METHODS) == []


def test_inheritance_is_shallow_apart_from_errors(product: Any) -> None:
    parents: dict[str, list[str]] = {}
    for module in product:
        for class_ in module.classes():
            bases = [ast.unparse(base).split(".")[-1].split("[")[0] for base in class_.bases]
            parents[class_.name] = [
                base for base in bases if base != "Frozen"
            ]  # it declares a record, as NamedTuple does

    def chain(name: str) -> int:
        return 1 + max((chain(parent) for parent in parents.get(name, []) if parent in parents), default=0)

    deep = [name for name in parents if not name.endswith("Error") and chain(name) > CHAIN]
    assert deep == []
