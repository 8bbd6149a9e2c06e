"""The browser's side of a widget: small ES modules, joined into the one that anywidget takes.

No bundler is needed for that: the modules name each other by `import { … } from "./….js";`, and no
two of them use one name at the top, so that they can stand in one scope.
"""

import re
from pathlib import Path

_FRONT = Path(__file__).parent / "front"
_IMPORT = re.compile(r'^import\s[^;]*?\sfrom\s+"(?P<path>[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default )", re.MULTILINE)


def script(entry: str) -> str:
    """The module `front/ENTRY` with all that it imports, each once and before whoever needs it."""
    parts: dict[Path, str] = {}
    _gather((_FRONT / entry).resolve(), parts)
    return "\n".join(parts.values())


def _gather(path: Path, parts: dict[Path, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for found in _IMPORT.finditer(text):
        needed = (path.parent / found["path"]).resolve()
        if needed not in parts:
            _gather(needed, parts)
    parts[path] = _EXPORT.sub("", _IMPORT.sub("", text)).strip() + "\n"


def style(*names: str) -> str:
    """The style sheets `front/NAME`, one after the other."""
    return "\n".join((_FRONT / name).read_text(encoding="utf-8") for name in names)
