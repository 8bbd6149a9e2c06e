"""What each of our files imports, read from its source without running it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import workshop_gpu

PACKAGE = Path(workshop_gpu.__file__).parent


def sources(folder: str = "") -> list[Path]:
    """All Python files of a folder of the package (or the one file of that name)."""
    root = PACKAGE / folder
    files = [root.with_suffix(".py")] if not root.is_dir() else sorted(root.rglob("*.py"))
    assert files, f"{root} has no Python files: the wall would guard nothing"
    return files


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path) -> Iterator[str]:
    """The full names of imported modules, those inside functions too; not those for types only."""
    for node in _nodes(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it goes"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from _nodes(child)


def imported_from(path: Path, *packages: str) -> list[str]:
    """Those of a file's imports that are, or lie inside, the packages."""
    return [
        name
        for name in imports(path)
        if any(name == package or name.startswith(f"{package}.") for package in packages)
    ]
