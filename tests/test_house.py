"""The limits of the house, enforced. The list of exceptions is empty and stays so.

Each rule is a function from a folder of sources to the list of what breaks it. Below the rules, tests run
them over the repository; the last tests feed them bad sources and see these reported.
"""

from __future__ import annotations

import ast
import graphlib
import importlib
import io
import os
import re
import shutil
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dabom import errors

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "dabom"
LIMITED = ("src", "bench", "script", "experiments", "tests")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
MAX_PARAMETERS = 6
MAX_PUBLIC_NAMES = 30
EXCEPTIONS: frozenset[str] = frozenset()

# Calls that reach outside the interpreter: none of them may run because a module was imported.
OUTSIDE = {
    "open",
    "read_text",
    "read_bytes",
    "getenv",
    "run",
    "Popen",
    "mkdir",
    "connect",
    "CDLL",
    "import_module",
}
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Rule = Callable[[Path], list[str]]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def sources(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*.py")):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path.relative_to(folder).as_posix(), path


def functions(tree: ast.Module) -> Iterator[tuple[FunctionNode, bool]]:
    """Every function of a module with whether its first parameter is `self` or `cls`."""
    bound: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bound.update(node.body)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
            yield node, node in bound and not static


def long_files(folder: Path) -> list[str]:
    counts = ((name, len(path.read_text(encoding="utf-8").splitlines())) for name, path in sources(folder))
    return [f"{name}: {lines} lines" for name, lines in counts if lines > MAX_FILE_LINES]


def long_functions(folder: Path) -> list[str]:
    found = []
    for name, path in sources(folder):
        for node, _ in functions(parse(path)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            lines = (node.end_lineno or node.lineno) - first + 1
            if lines > MAX_FUNCTION_LINES:
                found.append(f"{name}:{node.lineno} {node.name}: {lines} lines")
    return found


def wide_signatures(folder: Path) -> list[str]:
    found = []
    for name, path in sources(folder):
        for node, is_bound in functions(parse(path)):
            args = node.args
            count = len(args.posonlyargs) + len(args.args) + len(args.kwonlyargs) - is_bound
            count += (args.vararg is not None) + (args.kwarg is not None)
            if count > MAX_PARAMETERS:
                found.append(f"{name}:{node.lineno} {node.name}: {count} parameters")
    return found


def comments(path: Path) -> dict[int, str]:
    with io.StringIO(path.read_text(encoding="utf-8")) as text:
        return {
            token.start[0]: token.string
            for token in tokenize.generate_tokens(text.readline)
            if token.type == tokenize.COMMENT
        }


def gives_reason(comment: str) -> bool:
    """A reason is at least three words besides the marks for the tools."""
    return len(re.sub(r"noqa(: *[A-Z0-9, ]+)?|type: ignore\S*", "", comment).strip("# -:").split()) >= 3


def is_broad(node: ast.expr | None) -> bool:
    names = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(
        n is None or (isinstance(n, ast.Name) and n.id in {"Exception", "BaseException"}) for n in names
    )


def silent_excepts(folder: Path) -> list[str]:
    found = []
    for name, path in sources(folder):
        reasons = {line for line, text in comments(path).items() if gives_reason(text)}
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ExceptHandler):
                raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
                silent = is_broad(node.type) and not raises
            elif isinstance(node, ast.Call):
                called = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                silent = called == "suppress" and any(is_broad(arg) for arg in node.args)
            else:
                continue
            if silent and node.lineno not in reasons:
                found.append(f"{name}:{node.lineno} catches everything and gives no reason")
    return found


def stray_errors(folder: Path) -> list[str]:
    """Errors of our own outside `errors.py`, where the whole tree is drawn."""
    tree = {
        c.__name__ for c in vars(errors).values() if isinstance(c, type) and c.__module__ == errors.__name__
    }
    return [
        f"{name}:{node.lineno} {node.name} belongs into errors.py"
        for name, path in sources(folder)
        if path.name != "errors.py"
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef) and tree & {ast.unparse(base).split(".")[-1] for base in node.bases}
    ]


def at_runtime(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run on import: not those for the type checker, not those of a script's end."""
    for statement in body:
        if isinstance(statement, ast.If) and re.search("TYPE_CHECKING|__name__", ast.unparse(statement.test)):
            continue
        yield statement


def imports(tree: ast.Module, modules: set[str]) -> set[str]:
    found: set[str] = set()
    for statement in at_runtime(tree.body):
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found.add(inner if inner in modules else node.module)
    return found & modules


def import_cycles(folder: Path) -> list[str]:
    """`folder` holds the package, so that module names start with its folder's name."""
    paths = {re.sub(r"(/__init__)?\.py$", "", name).replace("/", "."): path for name, path in sources(folder)}
    graph = {module: imports(parse(path), set(paths)) - {module} for module, path in paths.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [" imports ".join(reversed(error.args[1]))]
    return []


def reaches_outside(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return called in OUTSIDE
    return isinstance(node, ast.Attribute) and node.attr == "environ"


def is_empty_container(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        return node.func.id in {"dict", "list", "set", "defaultdict", "deque", "OrderedDict"}
    return (isinstance(node, ast.Dict) and not node.keys) or (isinstance(node, ast.List) and not node.elts)


def work_at_import(folder: Path) -> list[str]:
    found = []
    for name, path in sources(folder):
        if path.name == "__main__.py":  # it is run, never imported
            continue
        tree = parse(path)
        found += [f"{name}:{n.lineno} global" for n in ast.walk(tree) if isinstance(n, ast.Global)]
        for statement in at_runtime(tree.body):
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                found.append(f"{name}:{statement.lineno} calls something on import")
            elif isinstance(statement, ast.Assign | ast.AnnAssign) and is_empty_container(statement.value):
                found.append(f"{name}:{statement.lineno} keeps state in a module")
            elif any(reaches_outside(node) for node in ast.walk(statement)):
                found.append(f"{name}:{statement.lineno} reaches outside on import")
    return found


@pytest.mark.parametrize("folder", LIMITED)
@pytest.mark.parametrize("rule", [long_files, long_functions, wide_signatures, silent_excepts])
def test_limits_hold(rule: Rule, folder: str) -> None:
    assert [line for line in rule(ROOT / folder) if line not in EXCEPTIONS] == []


@pytest.mark.parametrize("rule", [import_cycles, work_at_import, stray_errors])
def test_modules_import_cleanly(rule: Rule) -> None:
    assert rule(ROOT / "src") == []


def test_no_exception_is_listed() -> None:
    assert not EXCEPTIONS


def rows() -> list[str]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = config["contracts"]
    assert contract["exhaustive"] is True
    assert not {"ignore_imports", "exhaustive_ignores"} & contract.keys(), "the rows have no exceptions"
    return [name.strip() for row in contract["layers"] for name in row.split("|")]


def parts() -> list[str]:
    """The packages and modules directly below `dabom`."""
    return sorted(
        path.stem
        for path in PACKAGE.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and not path.stem.startswith("__")
    )


def test_every_package_has_a_row() -> None:
    assert sorted(rows()) == parts()


@pytest.mark.parametrize("name", [name for name in parts() if (PACKAGE / name).is_dir()])
def test_public_list_is_short_and_true(name: str) -> None:
    package = importlib.import_module(f"dabom.{name}")
    public = package.__all__
    assert 0 < len(set(public)) == len(public) <= MAX_PUBLIC_NAMES
    assert [n for n in public if not hasattr(package, n)] == []


@pytest.mark.parametrize("name", parts())
def test_tests_mirror_the_tree(name: str) -> None:
    single, folder = ROOT / "tests" / f"test_{name}.py", ROOT / "tests" / name
    assert single.exists() or list(folder.rglob("test_*.py")), f"nothing tests dabom.{name}"


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout


def test_local_folders_stay_out_of_git() -> None:
    names = ["data/x", "var/x", ".venv/x", ".vllm/x", ".cache/x"]
    assert git("check-ignore", *names).split() == names


def test_no_tracked_file_names_a_machine_or_a_registry() -> None:
    # Each pattern is in two parts here, so that this file does not hold what it looks for.
    found = ["/work" + "/main", "/work" + "/shared", "../sha" + "red", "/ro" + "ot/", "/opt/" + "wheels"]
    found += [
        "pypi" + ".org",
        "pythonhosted" + ".org",
        "npmjs" + ".org",
        "npmjs" + ".com",
        "deb.debian" + ".org",
    ]
    patterns = [option for text in found for option in ("-e", text)]
    assert git("grep", "-I", "-n", "-F", *patterns).splitlines() == []


BAD_SOURCES: dict[Rule, str] = {
    long_files: "x = 1\n" * (MAX_FILE_LINES + 1),
    long_functions: "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES,
    wide_signatures: "class A:\n    def f(self, a, b, c, *args, d, e, **rest): ...\n",
    silent_excepts: "try:\n    f()\nexcept (OSError, Exception):  # noqa: BLE001\n    pass\n",
    work_at_import: "_seen = {}\n",
    stray_errors: "class NotReady(errors.Unavailable): ...\n",
}
GOOD_SOURCES: dict[Rule, str] = {
    long_files: "x = 1\n" * MAX_FILE_LINES,
    long_functions: "@g\ndef f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES - 2),
    wide_signatures: "class A:\n    def f(self, a, b, c, *args, d, **rest): ...\n",
    silent_excepts: "try:\n    f()\nexcept Exception:  # the log line is all that is left to do\n    pass\n",
    work_at_import: "from os import environ\nif __name__ == '__main__':\n    main()\n",
    stray_errors: "class Left(Exception): ...\n",
}


@pytest.mark.parametrize("rule", BAD_SOURCES, ids=lambda rule: str(rule.__name__))
def test_rule_reports_what_breaks_it(rule: Rule, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD_SOURCES[rule], encoding="utf-8")
    (tmp_path / "good.py").write_text(GOOD_SOURCES[rule], encoding="utf-8")
    assert [line.split(":")[0] for line in rule(tmp_path)] == ["bad.py"]


@pytest.mark.parametrize(
    "text",
    [
        "import contextlib\nwith contextlib.suppress(Exception):\n    f()\n",
        "try:\n    f()\nexcept:\n    pass\n",
    ],
)
def test_other_ways_to_catch_everything_are_reported(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(text, encoding="utf-8")
    assert len(silent_excepts(tmp_path)) == 1


@pytest.mark.parametrize(
    "text", ["def f():\n    global x\n", "main()\n", "import os\nx = os.environ['A']\n", "y = open('f')\n"]
)
def test_other_work_at_import_is_reported(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(text, encoding="utf-8")
    assert len(work_at_import(tmp_path)) == 1


def test_import_cycle_is_reported(tmp_path: Path) -> None:
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("from p.a import x\n", encoding="utf-8")
    (package / "a.py").write_text("from p import b\n", encoding="utf-8")
    (package / "b.py").write_text("if TYPE_CHECKING:\n    from p import a\n", encoding="utf-8")
    assert import_cycles(tmp_path) == []
    (package / "b.py").write_text("def f():\n    from p.a import x\n", encoding="utf-8")
    assert import_cycles(tmp_path) in (["p.a imports p.b imports p.a"], ["p.b imports p.a imports p.b"])


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_an_import_of_a_higher_row_is_reported(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in rows():
        (tmp_path / "src" / "dabom" / name).mkdir(parents=True)
        (tmp_path / "src" / "dabom" / name / "__init__.py").touch()
    (tmp_path / "src" / "dabom" / "__init__.py").touch()
    assert lint_imports(tmp_path).returncode == 0
    (tmp_path / "src" / "dabom" / "errors" / "__init__.py").write_text(
        "import dabom.gateway\n", encoding="utf-8"
    )
    refused = lint_imports(tmp_path)
    assert refused.returncode == 1
    assert "dabom.errors is not allowed to import dabom.gateway" in refused.stdout
