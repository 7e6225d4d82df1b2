"""Errors are part of the interface: each has a name to be found by, and a docstring that explains it to users."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mailboat import errors
from mailboat.cli.explain import explanations

ALL = sorted(
    (var for var in vars(errors).values() if isinstance(var, type) and issubclass(var, errors.MailboatError)),
    key=lambda one: one.__name__,
)
INNER = {"Exception", "BaseException", "ValueError", "TypeError", "LookupError", "KeyError", "RuntimeError", "OSError"}


@pytest.mark.parametrize("error", ALL, ids=lambda one: one.__name__)
def test_an_error_explains_itself_in_sentences(error: type[errors.MailboatError]) -> None:
    text = error.__doc__ or ""
    assert len(text.split()) >= 6
    assert text.strip()[0].isupper()
    assert text.strip()[-1] in ".`)"
    assert "Attributes:" not in text


@pytest.mark.parametrize("error", ALL, ids=lambda one: one.__name__)
def test_an_error_carries_a_decision(error: type[errors.MailboatError]) -> None:
    decisions = (errors.RetryableError, errors.PermanentError, errors.StopError)
    assert error is errors.MailboatError or issubclass(error, decisions)
    assert 1 <= error.exit_code <= 125


def test_error_names_end_in_error(product: Any) -> None:
    known = {item.__name__ for item in ALL} | INNER
    found = [
        f"{module.at(class_)}: {class_.name}"
        for module in product
        for class_ in module.classes()
        if any(ast.unparse(base).split(".")[-1] in known for base in class_.bases) and not class_.name.endswith("Error")
    ]
    assert not found, "\n".join(found)


def test_errors_beside_their_code_belong_to_the_hierarchy_and_are_explained(product: Any) -> None:
    # a signal inside the engine, or of a test, is no error for users; it says so in its docstring
    known = {item.__name__ for item in ALL} | {"Exception", "BaseException", "OSError"}
    found = [
        f"{module.at(class_)}: {class_.name}"
        for module in product
        if module.name != "agent_image/mailboat/errors.py"
        for class_ in module.classes()
        if class_.name.endswith("Error")
        and not class_.name.startswith("_")
        and not (ast.get_docstring(class_) and known & {ast.unparse(base).split(".")[-1] for base in class_.bases})
    ]
    assert not found, "\n".join(found)


def test_every_error_class_of_both_images_is_known_to_explain(product: Any) -> None:
    known = set(explanations()) | {"Mailboat", "Permanent", "Stop", "UntrustedInput"}
    family = {"MailboatError"}
    classes = [(module, class_) for module in product for class_ in module.classes()]
    found = list[str]()
    is_growing = True
    while is_growing:
        is_growing = False
        for module, one in classes:
            if one.name not in family and family & {ast.unparse(base).split(".")[-1] for base in one.bases}:
                family.add(one.name)
                is_growing = True
                if one.name.removesuffix("Error") not in known and "/testing/" not in module.name:
                    found.append(f"{module.at(one)}: {one.name}")
    assert len(family) > 60
    assert not found, "\n".join(found)


def test_no_explanation_is_empty() -> None:
    # in a module that mypyc compiles a class has no docstring at run time: define errors elsewhere
    assert [name for name, one in explanations().items() if len(one.text.split()) < 6] == []


def test_no_error_is_defined_in_a_compiled_module(product: Any, root: Path) -> None:
    build = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
    compiled = {f"agent_image/{module}" for module in build["custom"]["modules"]}
    assert compiled <= {module.name for module in product}
    found = [
        f"{module.at(class_)}: {class_.name}"
        for module in product
        if module.name in compiled
        for class_ in module.classes()
        if class_.name.endswith("Error") and not class_.name.startswith("_")
    ]
    assert not found, "\n".join(found)


def test_only_own_errors_are_raised_for_users(product: Any) -> None:
    # a bare Exception carries no decision; ValueError and TypeError are for mistakes of the programmer
    vague = {"Exception", "BaseException", "RuntimeError"}
    found = []
    for module in product:
        for node in module.nodes:
            if isinstance(node, ast.Raise) and node.exc is not None:
                raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                if ast.unparse(raised) in vague and not module.name.startswith("agent_image/mailboat/testing/"):
                    found.append(f"{module.at(node)}: raise {ast.unparse(raised)}")
    assert not found, "\n".join(found)


def test_only_new_errors_are_raised_from_none(product: Any) -> None:
    # `raise error from None` of an existing error sets its cause to None, so traces lose it; a bare `raise` keeps it
    found = [
        f"{module.at(node)}: {ast.unparse(node)}"
        for module in product
        for node in module.nodes
        if isinstance(node, ast.Raise)
        and isinstance(node.cause, ast.Constant)
        and not (isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name))
    ]
    assert not found, "\n".join(found)
