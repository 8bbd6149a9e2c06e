"""Every error that a person can see says what to do, or what would be allowed.

The messages are read from the source, all of them, wherever an error is made.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.walls.imports import PACKAGE, sources, tree

ROOTS = {"WorkshopError", "ClientError", "UsageError"}
ONE_S_OWN_DOING = {"Interrupted", "JobCancelled"}
"""Who stops something need not be told what to do about it."""
REPEATED = {"ReportedError"}
"""It repeats another process's message."""

VERBS = (
    "add", "ask", "call", "change", "choose", "close", "copy", "download", "end", "export", "free",
    "give", "install", "keep", "leave", "load", "look", "make", "name", "offer", "paint", "pick",
    "put", "raise", "read", "reload", "reserve", "restart", "save", "say", "send", "set", "show",
    "shut", "start", "take", "tell", "try", "use", "wait", "write",
)  # fmt: skip
ADVICE = re.compile(
    # An order, as a sentence or behind a comma, a colon, "or", "and" …
    rf"(?:^|[.;:,?(]\s*|\b(?:or|and|then|twice,)\s+)(?:{'|'.join(VERBS)})\b"
    # … or what would be allowed.
    r"|\bmust\b|\bat most\b|\bat least\b|\bis not between\b|\bis no(?:t a)? multiple of\b"
    r"|\bis none of\b|\bhere: |\bthere is: |\blists all\b|\bshows yours\b|--help|\?mine=1"
    r"|\bnothing to \w+\b",
    re.IGNORECASE,
)
FEWEST_WORDS = 3
"""Fewer are a field's name or the like, beside a message that comes from elsewhere."""


Function = ast.FunctionDef | ast.AsyncFunctionDef


class Made(NamedTuple):
    """An error that is made somewhere: of which class, with which words."""

    place: str
    error: str
    words: str


class Sources:
    """All files, and the classes of errors in them."""

    def __init__(self) -> None:
        self.trees = {str(path.relative_to(PACKAGE)): tree(path) for path in sources()}
        above: dict[str, set[str]] = {}
        for module in self.trees.values():
            for node in ast.walk(module):
                if isinstance(node, ast.ClassDef):
                    names = {base.id for base in node.bases if isinstance(base, ast.Name)}
                    above.setdefault(node.name, set()).update(names)
        self.errors = set(ROOTS) | ONE_S_OWN_DOING | REPEATED
        while more := {name for name, bases in above.items() if bases & self.errors} - self.errors:
            self.errors |= more

    def made(self) -> Iterator[Made]:
        """Each call of an error's class, and of a function that does nothing but that."""
        for place, module in self.trees.items():
            makers = {maker.name: (call, words) for maker, call, words in self._makers(module)}
            for scope in [module, *functions(module)]:
                names = assigned(scope)
                for call in calls_in(scope):
                    words, called = words_of(call, names), name_of(call)
                    where = f"{place}:{call.lineno}"
                    if called in makers:
                        made, around = makers[called]
                        yield Made(where, name_of(made), f"{around}: {words}")
                    elif called in self.errors and all(
                        call is not own for own, _ in makers.values()
                    ):
                        yield Made(where, called, words)

    def templates(self) -> Iterator[Made]:
        """The words that classes of errors put around what they are given."""
        for place, module in self.trees.items():
            for node in ast.walk(module):
                if isinstance(node, ast.ClassDef) and node.name in self.errors:
                    for method in functions(node):
                        for call in calls_in(method):
                            if ast.unparse(call.func) == "super().__init__":
                                words = words_of(call, assigned(method))
                                yield Made(f"{place}:{call.lineno}", node.name, words)

    def _makers(self, module: ast.Module) -> Iterator[tuple[Function, ast.Call, str]]:
        for function in functions(module):
            last = function.body[-1]
            call = last.value if isinstance(last, ast.Return) else None
            made = isinstance(call, ast.Call) and name_of(call) in self.errors
            if made and function.args.args:
                yield function, call, words_of(call, assigned(function))


def functions(node: ast.AST) -> list[Function]:
    return [each for each in ast.walk(node) if isinstance(each, Function)]


def calls_in(scope: ast.AST) -> Iterator[ast.Call]:
    """The calls of a function or module, without those of functions inside it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, Function):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from calls_in(child)


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "id", "") or getattr(call.func, "attr", "")


def assigned(scope: ast.AST) -> dict[str, list[ast.expr]]:
    """What the names of a function stand for, as far as text goes."""
    names: dict[str, list[ast.expr]] = {}
    for each in ast.walk(scope):
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            names.setdefault(each.targets[0].id, []).append(each.value)
    return names


def words_of(call: ast.Call, names: dict[str, list[ast.expr]]) -> str:
    """The text in a call's arguments, one after the other; values are left out."""
    found = []
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        parts = [argument]
        for each in ast.walk(argument):
            if isinstance(each, ast.Name):
                parts += names.get(each.id, [])
        found += ["".join(texts(part)) for part in parts]
    return ": ".join(filter(None, found))


def texts(node: ast.AST) -> Iterator[str]:
    for child in [node] if isinstance(node, ast.Constant) else ast.iter_child_nodes(node):
        if isinstance(child, ast.Constant):
            if isinstance(child.value, str):
                yield child.value
        else:
            yield from texts(child)


def says_what_to_do(words: str) -> bool:
    return len(words.split()) < FEWEST_WORDS or bool(ADVICE.search(words))


def test_every_error_that_reaches_a_person_says_what_to_do() -> None:
    found = Sources()
    advised = {each.error for each in found.templates() if ADVICE.search(each.words)}
    quiet = ONE_S_OWN_DOING | REPEATED | advised
    made = list(found.made())
    # A class whose makers say it all is only the frame around their words.
    spoken = {each.error for each in made if len(each.words.split()) >= FEWEST_WORDS}
    made += [each for each in found.templates() if each.error not in spoken]
    assert len(made) > 250, "the messages are read"
    silent = {
        each.place: each.words
        for each in made
        if each.error not in quiet and not says_what_to_do(each.words)
    }
    assert silent == {}


LITERAL = re.compile(r""" '((?:[^'\\\n]|\\.)*)' | "((?:[^"\\\n]|\\.)*)" | `([^`]*)` """, re.VERBOSE)
COMPLAINT = re.compile(r"\b(?:cannot|could not|is not a|not usable|does not answer|has no GPU)\b")
NOT_FOR_PEOPLE = re.compile(r"^\s*(?://|/?\*|console\.)")


def complaints() -> Iterator[tuple[str, str]]:
    """The sentences of the pages' scripts that say that something is wrong."""
    scripts = [*(PACKAGE / "client" / "widgets").rglob("*.js")]
    scripts += [*(PACKAGE.parent / "labextension" / "src").rglob("*.ts*")]
    for script in scripts:
        for number, line in enumerate(script.read_text().splitlines(), 1):
            if not NOT_FOR_PEOPLE.match(line):
                for words in map("".join, LITERAL.findall(line)):
                    if COMPLAINT.search(words):
                        yield f"{script.name}:{number}", words


def test_what_a_page_finds_wrong_by_itself_comes_with_what_to_do() -> None:
    found = dict(complaints())
    assert len(found) > 5, "the scripts are read"
    silent = {
        place: words
        for place, words in found.items()
        if not ADVICE.search(words) and "trying again" not in words
    }
    assert silent == {}


def test_what_says_nothing_is_found() -> None:
    assert not says_what_to_do("This cannot be done, and that is a pity.")
    assert not says_what_to_do("the load failed: a broken file")
    assert says_what_to_do("This cannot be done. Wait for the others.")
    assert says_what_to_do("7 is not between 1 and 5")
