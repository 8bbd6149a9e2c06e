"""`models.toml`: what the instructor writes by hand, read with all its mistakes, and written back.

Every mistake has its line and its reason; they are collected, so that one look mends them all.
"""

import difflib
import os
import re
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from workshop_gpu.catalogue import lines
from workshop_gpu.catalogue.loras import LoraSpec, broken_lora_rules, shipped_loras
from workshop_gpu.catalogue.shipped import shipped_specs
from workshop_gpu.catalogue.spec import Defaults, Limits, Memory, ModelSpec, Source
from workshop_gpu.catalogue.spec_rules import broken_rules

Place = lines.Path
_INNER_KEYS = {
    field.name: table
    for table, struct in (
        ("source", Source),
        ("defaults", Defaults),
        ("limits", Limits),
        ("memory", Memory),
    )
    for field in msgspec.structs.fields(struct)
}
"""Which table of an entry a key belongs in, for those who write it outside."""
_SHIPPED_KEY = "shipped"


class CatalogueMistake(msgspec.Struct, frozen=True):
    """One mistake of the file. `line` counts from 1; 0 where it is about the file as a whole."""

    line: int
    reason: str

    def text(self, file_name: str) -> str:
        """`models.toml line 12: unknown key "stepps" (did you mean "steps"?)`."""
        where = f"{file_name} line {self.line}" if self.line else file_name
        return f"{where}: {self.reason}"


class ModelsFile(msgspec.Struct, frozen=True):
    """What a file says: models and LoRAs without a mistake, in its order, and the mistakes."""

    specs: tuple[ModelSpec, ...]
    mistakes: tuple[CatalogueMistake, ...]
    loras: tuple[LoraSpec, ...] = ()


def read_models(path: Path) -> ModelsFile:
    """Read a file. Never raises for its content; a file that cannot be read is a mistake."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        return ModelsFile((), (CatalogueMistake(0, f"cannot be read ({problem.strerror})"),))
    except UnicodeDecodeError:
        return ModelsFile((), (CatalogueMistake(0, "is no UTF-8 text"),))
    return parse_models(text)


def parse_models(text: str) -> ModelsFile:
    """Read the text of a models.toml."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        return ModelsFile((), (_syntax_mistake(str(problem), text),))
    except (RecursionError, ValueError) as problem:  # nested too deep; a number too long
        reason = f"cannot be read ({type(problem).__name__}: {problem})"
        return ModelsFile((), (CatalogueMistake(0, reason),))
    return _Reading(data, lines.find_places(text)).result()


class _Reading:
    """One pass over the data of one file."""

    def __init__(self, data: dict[str, Any], places: dict[Place, int]) -> None:
        self._data = data
        self._places = places
        self._mistakes: list[CatalogueMistake] = []
        self._lines: dict[tuple[str, str], int] = {}

    def result(self) -> ModelsFile:
        for key in self._data:
            if key not in ("model", "lora"):
                self._note((key,), unknown_key(key, ["model", "lora"]))
        tables = self._tables("model", "models")
        specs = [spec for index, table in enumerate(tables) if (spec := self._model(index, table))]
        named = [str(table.get("id")) for table in tables]
        tables = self._tables("lora", "LoRAs")
        loras = [lora for i, table in enumerate(tables) if (lora := self._lora(i, table, named))]
        mistakes = sorted(self._mistakes, key=lambda mistake: mistake.line)
        return ModelsFile(tuple(specs), tuple(mistakes), tuple(loras))

    def _tables(self, key: str, what: str) -> list[dict[str, Any]]:
        tables = self._data.get(key, [])
        if isinstance(tables, list) and all(isinstance(table, dict) for table in tables):
            return tables
        self._note((key,), f"{what} are written as [[{key}]] tables, with two brackets")
        return []

    def _lora(self, index: int, table: dict[str, Any], models: list[str]) -> LoraSpec | None:
        place: Place = ("lora", index)
        known = len(self._mistakes)
        table = self._with_shipped(place, table, shipped_loras(), "file")
        good = self._good_fields(place, table, LoraSpec)
        try:
            spec = msgspec.convert(good, LoraSpec)
        except msgspec.ValidationError:
            return None  # something that must be there is missing, and is noted already
        for field, reason in broken_lora_rules(spec, models):
            self._note((*place, *field), reason)
        self._check_new(place, "LoRA", spec.id)
        return spec if len(self._mistakes) == known else None

    def _check_new(self, place: Place, what: str, name: str) -> None:
        """No two of a kind may have the same id."""
        here = lines.line_of(self._places, place)
        first_line = self._lines.setdefault((what, name), here)
        if first_line != here:
            self._note((*place, "id"), f'a second {what} "{name}" (the first: line {first_line})')

    def _model(self, index: int, table: dict[str, Any]) -> ModelSpec | None:
        place: Place = ("model", index)
        known = len(self._mistakes)
        table = self._with_shipped(place, table, shipped_specs(), "source")
        good = self._good_fields(place, table, ModelSpec)
        try:
            spec = msgspec.convert(good, ModelSpec)
        except msgspec.ValidationError:
            return None  # something that must be there is missing, and is noted already
        for field, reason in broken_rules(spec):
            self._note((*place, *field), reason)
        self._check_new(place, "model", spec.id)
        return spec if len(self._mistakes) == known else None

    def _with_shipped(
        self, place: Place, table: dict[str, Any], shipped: Sequence[Any], instead_of: str
    ) -> dict[str, Any]:
        """`shipped = "shapes"` stands for a shipped model's source, defaults and limits, and
        likewise for a shipped LoRA's file."""
        if _SHIPPED_KEY not in table:
            return table
        offered = {spec.id: spec for spec in shipped}
        name = table[_SHIPPED_KEY]
        if not isinstance(name, str) or name not in offered:
            self._note((*place, _SHIPPED_KEY), f"shipped is one of {', '.join(offered)}")
            return {key: value for key, value in table.items() if key != _SHIPPED_KEY}
        if instead_of in table:
            self._note((*place, instead_of), f"write either shipped or {instead_of}, not both")
        merged: dict[str, Any] = msgspec.to_builtins(offered[name])
        for key, value in table.items():
            if key == _SHIPPED_KEY:
                continue
            nested = merged.get(key)
            merged[key] = (
                nested | value if isinstance(nested, dict) and isinstance(value, dict) else value
            )
        return merged

    def _good_fields(self, place: Place, table: dict[str, Any], struct: Any) -> dict[str, Any]:
        """The table without what is a mistake in itself; each mistake is noted."""
        fields = {field.name: field for field in msgspec.structs.fields(struct)}
        extra = [_SHIPPED_KEY] if struct in (ModelSpec, LoraSpec) else []
        good: dict[str, Any] = {}
        for key, value in table.items():
            here = (*place, key)
            wanted = _wanted(fields[key].type, value) if key in fields else None
            if wanted is None:
                self._note(here, unknown_key(key, [*fields, *extra]))
            elif isinstance(wanted, type) and _is_table(wanted):
                if isinstance(value, dict):
                    good[key] = self._good_fields(here, value, wanted)
                else:
                    inner = msgspec.structs.fields(wanted)[0].name
                    self._note(here, f"{key} is a table: {key} = {{ {inner} = … }}")
            elif _fits(value, wanted):
                good[key] = value
            else:
                kind = fields[key].type
                self._note(here, f"{key} must be {_in_words(kind)}, not {_in_words(type(value))}")
        for name, field in fields.items():
            if field.required and name not in table:
                self._note(place, _missing(name))
        return good

    def _note(self, place: Place, reason: str) -> None:
        self._mistakes.append(CatalogueMistake(lines.line_of(self._places, place), reason))


def _wanted(kind: Any, value: Any) -> Any:
    """The type of a field; of one that may be a table too, that which the value is meant as."""
    tables = [each for each in get_args(kind) if isinstance(each, type) and _is_table(each)]
    return tables[0] if tables and isinstance(value, dict) else kind


def _is_table(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct)


def _fits(value: Any, wanted: Any) -> bool:
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        return False
    return True


def unknown_key(key: str, known: list[str]) -> str:
    """Says that a key is not known, and which one was probably meant."""
    if close := difflib.get_close_matches(key, known, n=1):
        return f'unknown key "{key}" (did you mean "{close[0]}"?)'
    if inner := difflib.get_close_matches(key, _INNER_KEYS, n=1):
        return f'unknown key "{key}" (did you mean "{inner[0]}" in {_INNER_KEYS[inner[0]]}?)'
    return f'unknown key "{key}" (known: {", ".join(known)})'


def _missing(name: str) -> str:
    if name == "file":
        return 'file is missing: file = "….safetensors"'
    if name == "models":
        return 'models is missing: models = ["…"], the ids of models that the LoRA is for'
    if name == "source":
        return 'source is missing: source = { folder = "…" }, { hub = "…" } or { file = "…" }'
    return f"{name} is missing"


def _in_words(kind: Any) -> str:
    names = {
        str: "text", int: "a whole number", float: "a number", bool: "true or false",
        dict: "a table", list: "a list", tuple[str, ...]: "a list of texts",
    }  # fmt: skip
    if isinstance(kind, type) and _is_table(kind):
        return "a table"
    return names.get(kind, " or ".join(map(_in_words, get_args(kind))) or "a date")


def _syntax_mistake(problem: str, text: str) -> CatalogueMistake:
    match = re.search(r"\(at line (\d+), column \d+\)", problem)
    reason = re.sub(r"\s*\(at [^)]*\)", "", problem)
    line = int(match.group(1)) if match else max(1, len(text.splitlines()))
    return CatalogueMistake(line, f"not valid TOML: {reason[:1].lower()}{reason[1:]}")


def set_field(path: Path, model_id: str, field: str, value: str | int | float | bool) -> None:
    """Change one field ("pin", "defaults.steps") of one model in the file; comments stay.

    The new text is checked first and put in place in one step, so that no reader ever sees half
    a file. Raises ValueError where the change would be a mistake, KeyError for an unknown model.
    """
    import tomlkit  # needed here only; every start of the server would pay for it

    path = path.resolve()
    document = tomlkit.parse(path.read_text(encoding="utf-8"))
    tables: Any = document.get("model", [])
    table = next((table for table in tables if table.get("id") == model_id), None)
    if table is None:
        raise KeyError(model_id)
    *parents, name = field.split(".")
    for parent in parents:
        if parent not in table:
            table[parent] = tomlkit.inline_table()
        table = table[parent]
    table[name] = value
    text = tomlkit.dumps(document)
    mistakes = parse_models(text).mistakes
    if mistakes:
        raise ValueError(mistakes[0].text(path.name))
    _replace(path, text)


def _replace(path: Path, text: str) -> None:
    mode = path.stat().st_mode
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
