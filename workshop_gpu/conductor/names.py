"""Names and ids that come from outside are short and can be shown."""

from workshop_gpu.conductor.errors import InvalidRequest

MAX_NAME_LENGTH = 200


def name_problem(name: str) -> str:
    """What is wrong with the name or id of a job, model, participant, kernel or device; "" if
    nothing is."""
    if not name:
        return "is empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name)} characters ({MAX_NAME_LENGTH} are allowed)"
    return "" if name.isprintable() else "has characters that cannot be shown"


def check_names(**names: str | None) -> None:
    """Raises InvalidRequest with the field of the first bad name; None is no name."""
    for field, name in names.items():
        problem = "" if name is None else name_problem(name)
        if problem:
            raise InvalidRequest(field, problem)
