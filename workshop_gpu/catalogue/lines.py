"""On which line of a TOML file a key stands. tomllib tells values, but not their places."""

import re

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?")
_KEY = re.compile(r"""(?:"([^"\n]*)"|'([^'\n]*)'|([A-Za-z0-9_.-]+))\s*=(?!=)""")
_TRIPLE = re.compile(r'"""|\'\'\'')

_TRIPLE_VALUE = re.compile(r'"""(?:(?!""").)*"""|\'\'\'(?:(?!\'\'\').)*\'\'\'')

Path = tuple[str | int, ...]
"""A place in the data: ("model", 1, "defaults", "steps") is in the second [[model]] table."""


def line_of(places: dict[Path, int], path: Path) -> int:
    """The line of a place, or of the nearest thing around it; 1 where nothing is known."""
    for end in range(len(path), 0, -1):
        if path[:end] in places:
            return places[path[:end]]
    return 1


def find_places(text: str) -> dict[Path, int]:
    """The line (from 1) of every table header and key of a valid TOML text."""
    places: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    quote = ""
    for number, line in enumerate(text.splitlines(), 1):
        if quote:
            if quote not in line:
                continue
            line = line.split(quote, 1)[1]  # noqa: PLW2901
            quote = ""
        line = _TRIPLE_VALUE.sub('""', line)  # noqa: PLW2901
        opened = _TRIPLE.search(line)
        if opened:
            quote = opened.group()
            line = line[: opened.start()]  # noqa: PLW2901
        header = _HEADER.match(line)
        if header and "=" not in line.split("#")[0]:
            table = _table(header.group(1), _names(header.group(2)), counts)
            places.setdefault(table, number)
            continue
        for path in _keys(line):
            places.setdefault(table + path, number)
    return places


def _table(bracket: str, names: list[str], counts: dict[Path, int]) -> Path:
    """The place that a header opens; a name that is a list of tables means its last one."""
    path: Path = ()
    for depth, name in enumerate(names):
        path += (name,)
        if bracket == "[[" and depth == len(names) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path += (counts[path],)
    return path


def _keys(line: str) -> list[Path]:
    """The keys of one line: the first, and those of an inline table behind it."""
    bare = _without_strings(line)
    found: list[Path] = []
    outer: Path = ()
    for match in _KEY.finditer(bare):
        path = tuple(_names(next(part for part in match.groups() if part is not None)))
        depth = bare[: match.start()].count("{") - bare[: match.start()].count("}")
        if depth == 0:
            outer = path
            found.append(path)
        else:
            found.append(outer + path)
    return found


def _without_strings(line: str) -> str:
    """The line with string values emptied and the comment cut off, lengths aside."""
    line = re.sub(r'=\s*"(?:[^"\\]|\\.)*"', '= ""', line)
    line = re.sub(r"=\s*'[^']*'", "= ''", line)
    return re.sub(r"#(?=[^\"']*$).*", "", line)


def _names(dotted: str) -> list[str]:
    return [name.strip().strip("\"'") for name in dotted.split(".")]
