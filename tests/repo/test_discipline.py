"""Habits that no linter knows: time, chance and settings are passed in, state has an owner, exceptions have reasons."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

CLOCKS = {"agent_image/mailboat/clock.py", "agent_image/mailboat/testing/clocks.py"}
"""The only modules that ask the machine what time it is."""

OPERATOR_SHELL = re.compile(r"operator/mailboat_operator/(\w+|kinds/\w+/observe)\.py")
"""What acts and observes for the operator may ask for the time; kinds, plans and manifests below it are told."""

ROOTS = (
    "agent_image/mailboat/agent/",
    "agent_image/mailboat/cli/",
    "agent_image/mailboat/composition/",
    "agent_image/mailboat/control/",
)
"""Composition: where clocks, generators and settings are made, to be passed on."""

TESTING = "agent_image/mailboat/testing/"
"""Suites poll with a deadline of real time."""

ENVIRONMENT = {"agent_image/mailboat/composition/environment.py", "operator/mailboat_operator/settings.py"}
"""The only modules that read the environment; the command line's options may name variables to their framework."""

MUTATORS = {"append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove", "discard", "clear"}
LONGEST_PAUSE_SECONDS = 0.05
"""Of a poll with a deadline in a test, where there is no event to wait for."""
CLUSTER_CLIENT = "tests/plugins/cluster_client.py"
"""Twenty reads a second of a real API server cost more CPU than what is waited for, so its polls pause 0.25 s."""

SKIPS = re.compile(r"pytest\.(skip|importorskip)\(|mark\.(skip|skipif|xfail)\b")


def calls(module: Any) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the dotted name of what is called."""
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            yield ast.unparse(node.func), node


def is_constant(name: str) -> bool:
    """Whether a name is written like a constant or like a type."""
    bare = name.strip("_")
    return bare.isupper() or bare[:1].isupper() or name.startswith("__")


def test_only_the_clock_knows_the_time(product: Any) -> None:
    asks = re.compile(
        r"(time\.(time|time_ns|sleep|monotonic|monotonic_ns|perf_counter|perf_counter_ns)|.*datetime\.(now|today|utcnow)|date\.today)"
    )
    found = [
        f"{module.at(call)}: {name}"
        for module in product
        if module.name not in CLOCKS and not OPERATOR_SHELL.fullmatch(module.name)
        for name, call in calls(module)
        if asks.fullmatch(name) and not (module.name.startswith(TESTING) and name == "time.monotonic")
    ]
    assert not found, "\n".join(found)


def test_nothing_but_the_clock_imports_sleep_or_time_by_name(product: Any) -> None:
    found = [
        module.at(node)
        for module in product
        if module.name not in CLOCKS
        for node in module.nodes
        if isinstance(node, ast.ImportFrom) and node.module in {"time", "random"}
    ]
    assert not found, "\n".join(found)


def test_chance_is_passed_in(product: Any) -> None:
    found = []
    for module in product:
        for name, call in calls(module):
            is_made = name in {"random.Random", "random.SystemRandom"} and bool(
                call.args or module.name.startswith(ROOTS)
            )
            if name.startswith("random.") and not is_made:
                found.append(f"{module.at(call)}: {name}")
    assert not found, "\n".join(found)


def test_the_environment_is_read_in_one_place(product: Any) -> None:
    found = [
        module.at(node)
        for module in product
        if module.name not in ENVIRONMENT
        for node in module.nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv", "os.putenv"}
    ]
    assert not found, "\n".join(found)


def collections_of(module: Any) -> dict[str, ast.stmt]:
    """Lists, dictionaries and sets that are assigned to names of the module."""
    found: dict[str, ast.stmt] = {}
    kinds = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
    for node in module.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(getattr(node, "value", None), kinds):
            found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return found


def changed_name(node: ast.AST) -> str | None:
    """What a statement or call changes in place, if it does."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return ast.unparse(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
        return ast.unparse(node.func.value)
    return None


def test_modules_hold_no_state(product: Any) -> None:
    found = []
    for module in product:
        held = collections_of(module)
        found += [f"{module.at(node)}: {name} is a variable" for name, node in held.items() if not is_constant(name)]
        for node in module.nodes:
            if isinstance(node, ast.Global):
                found.append(f"{module.at(node)}: global {', '.join(node.names)}")
            if changed_name(node) in held:
                found.append(f"{module.at(node)}: changes {changed_name(node)}, which belongs to the module")
    assert not found, "\n".join(found)


def test_a_broad_except_gives_its_reason(product: Any, tools: Any) -> None:
    found = []
    for module in [*product, *tools]:
        for node in module.nodes:
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = ast.unparse(node.type) if node.type else ""
            last = node.body[-1]
            is_passed_on = isinstance(last, ast.Raise) and (last.exc is None or last.cause is not None)
            if caught not in {"", "Exception", "BaseException"} or is_passed_on:
                continue
            near = module.lines[node.lineno - 2 : node.body[0].lineno]
            remarks = [line.split("#", 1)[1] for line in near if "#" in line]
            if not any(re.sub(r"noqa(: [A-Z0-9, ]+)?", "", remark).strip(" #:-") for remark in remarks):
                found.append(f"{module.at(node)}: except {caught} without a reason beside it")
    assert not found, "\n".join(found)


def test_a_silenced_checker_gives_the_code(product: Any, tools: Any) -> None:
    bare = re.compile(r"#\s*(type:\s*ignore(?!\[[\w\-, ]+\])|noqa(?!:\s*[A-Z]+[0-9]+))")
    found = [
        f"{module.name}:{number}: {line.strip()}"
        for module in [*product, *tools]
        for number, line in enumerate(module.lines, 1)
        if bare.search(line)
    ]
    assert not found, "\n".join(found)


def test_a_silenced_type_checker_or_security_rule_gives_the_reason(product: Any, tools: Any) -> None:
    silenced = re.compile(r"#\s*(type:\s*ignore\[[\w\-, ]+\]|noqa:\s*(?:S[0-9]+|BLE001))(?P<rest>.*)$")
    found = []
    for module in [*product, *tools]:
        for number, line in enumerate(module.lines, 1):
            match = silenced.search(line)
            if match and not match["rest"].strip(" #:-"):
                found.append(f"{module.name}:{number}: {line.strip()}")
    assert not found, "\n".join(found)


def test_nothing_prints_but_the_command_line_and_tools(product: Any) -> None:
    found = [
        module.at(call)
        for module in product
        if not module.name.startswith(ROOTS)
        for name, call in calls(module)
        if name == "print"
    ]
    assert not found, "\n".join(found)


def is_pause_of_a_poll(call: ast.Call, longest: float) -> bool:
    """Whether it is the short pause of a loop that looks again."""
    length = call.args[0] if call.args else None
    return isinstance(length, ast.Constant) and isinstance(length.value, float) and length.value <= longest


def test_tests_do_not_sleep(test_modules: Any) -> None:
    found = [
        module.at(call)
        for module in test_modules
        for name, call in calls(module)
        if name in {"time.sleep", "sleep"}
        and not is_pause_of_a_poll(call, 0.25 if module.name == CLUSTER_CLIENT else LONGEST_PAUSE_SECONDS)
    ]
    assert not found, "\n".join(found)


def test_no_test_is_skipped(test_modules: Any) -> None:
    found = [
        f"{module.name}:{number}"
        for module in test_modules
        if module.path.name != "test_discipline.py"
        for number, line in enumerate(module.lines, 1)
        if SKIPS.search(line)
    ]
    assert not found, "\n".join(found)


def test_nothing_makes_objects_of_pickled_data(product: Any) -> None:
    """What such data says is run. What PySpark sends between its own processes is its matter."""
    forbidden = {"pickle", "cloudpickle", "marshal", "dill", "shelve", "joblib"}
    found = []
    for module in product:
        for node in module.nodes:
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
            found += [f"{module.at(node)}: {name}" for name in names if set(name.split(".")) & forbidden]
    assert not found, "\n".join(found)


def test_todo_marks_are_not_committed(product: Any, tools: Any, test_modules: Any) -> None:
    mark = re.compile(r"#\s*(TODO|FIXME|XXX|HACK)\b")
    found = [
        f"{module.name}:{number}"
        for module in [*product, *tools, *test_modules]
        for number, line in enumerate(module.lines, 1)
        if mark.search(line)
    ]
    assert not found, "\n".join(found)
