"""An operator's own template: a workflow, and a table of the parameters that set its inputs.

Pure. A table that is wrong is refused by the field that is, so that a service doesn't start with half a template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from genflow.errors import GenflowError, clean_text
from genflow.templates.parameters import (
    PROMPT_LIMIT,
    SEED_LIMIT,
    Choice,
    Number,
    Rule,
    Text,
    Truth,
    Whole,
    invalid_parameter,
    random_seed,
    refuse_unknown,
)
from genflow.templates.template import FILE_KINDS, Parameter
from genflow.workflow import AssetRef, parse_workflow

MOST_PARAMETERS = 100
WHOLE_LIMIT = 2**64 - 1
NUMBER_LIMIT = 1e15

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_KEYS = ("workflow", "description", "parameters")
_COMMON = ("input", "kind", "required", "default", "description")
_OF_KIND: dict[str, tuple[str, ...]] = {
    "text": ("low", "high"),
    "whole": ("low", "high", "step"),
    "number": ("low", "high"),
    "choice": ("choices",),
    "truth": (),
    "seed": (),
    "asset": (),
    "photo": (),
}
RESERVED = frozenset({"id", "workflow", "template", "set", "priority", "metadata"})
"""Names that are columns of a jobs file, and so can't be parameters."""


def invalid_template(field: str, message: str) -> GenflowError:
    """The refusal of one field of a template's table."""
    return GenflowError("template_invalid", f"{field}: {message}", details={"field": field})


@dataclass(frozen=True, slots=True)
class OwnTemplate:
    """A template that was read and checked."""

    name: str
    description: str | None
    parameters: tuple[Parameter, ...]
    text: str

    def read(
        self, given: Mapping[str, Any], *, form: bool = False, draw_seed: Callable[[], int] = random_seed
    ) -> dict[str, Any]:
        """See `Template.read`."""
        refuse_unknown(given, [parameter.name for parameter in self.parameters])
        absent: tuple[Any, ...] = (None, "") if form else (None,)
        values: dict[str, Any] = {}
        for parameter in self.parameters:
            value = given.get(parameter.name)
            if value in absent:
                if parameter.required:
                    raise invalid_parameter(parameter.name, "missing", "is required")
                values[parameter.name] = draw_seed() if parameter.kind == "seed" else parameter.default
            elif parameter.rule is None:
                values[parameter.name] = value
            else:
                values[parameter.name] = parameter.rule.read(parameter.name, value, form=form)
        return values

    def workflow(self, values: Mapping[str, Any], files: Mapping[str, AssetRef]) -> str:
        """See `Template.workflow`. What no parameter sets stays as the operator wrote it."""
        graph = parse_workflow(self.text)
        for parameter in self.parameters:
            value = files[parameter.name].as_json() if parameter.name in files else values[parameter.name]
            for node, key in parameter.inputs:
                graph[node]["inputs"][key] = value
        return json.dumps(graph, ensure_ascii=False)


def read_template(name: str, document: Any, load: Callable[[str], str]) -> OwnTemplate:
    """The template from its file's content; `load` reads a workflow that stands in a file of its own.

    Raises GenflowError `template_invalid` whose details name the field, and what `load` raises.
    """
    if not _NAME.fullmatch(name):
        raise invalid_template("name", "a template's name has small letters, digits and _, and begins with a letter")
    if not isinstance(document, dict):
        raise invalid_template("document", "the file must hold a table")
    _only(document, _KEYS, "")
    text = _workflow(document.get("workflow"), load)
    try:
        graph = parse_workflow(text)
    except GenflowError as error:
        raise invalid_template("workflow", error.message) from None
    table = document.get("parameters", {})
    if not isinstance(table, dict) or len(table) > MOST_PARAMETERS:
        raise invalid_template("parameters", f"must be a table of at most {MOST_PARAMETERS} parameters")
    parameters = tuple(_parameter(each, content, graph) for each, content in table.items())
    set_by: dict[tuple[str, str], str] = {}
    for parameter in parameters:
        for place in parameter.inputs:
            if (other := set_by.setdefault(place, parameter.name)) != parameter.name:
                raise invalid_template(
                    f"parameters.{parameter.name}.input", f"{'.'.join(place)} is set by {other} already"
                )
    return OwnTemplate(name, _description(document, "description"), parameters, text)


def _workflow(given: Any, load: Callable[[str], str]) -> str:
    if isinstance(given, dict):
        return json.dumps(given, ensure_ascii=False)
    if isinstance(given, str) and given:
        return load(given)
    raise invalid_template("workflow", "must be a graph in API format, or the path of one beside this file")


def _parameter(name: str, content: Any, graph: Mapping[str, Any]) -> Parameter:
    place = f"parameters.{clean_text(name, 80)}"
    if not _NAME.fullmatch(name) or name in RESERVED:
        raise invalid_template(
            place, f"a name has small letters, digits and _, and is none of {', '.join(sorted(RESERVED))}"
        )
    if not isinstance(content, dict):
        raise invalid_template(place, 'must be a table such as {input = "3.seed", kind = "seed"}')
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in _OF_KIND:
        raise invalid_template(f"{place}.kind", f"must be one of {', '.join(_OF_KIND)}")
    _only(content, (*_COMMON, *_OF_KIND[kind]), f"{place}.")
    inputs = _inputs(content.get("input"), graph, f"{place}.input")
    required = content.get("required", False)
    if not isinstance(required, bool):
        raise invalid_template(f"{place}.required", "must be true or false")
    rule = _rule(kind, content, place)
    default = content.get("default")
    held = graph[inputs[0][0]]["inputs"][inputs[0][1]]
    if kind == "seed" or required:
        if default is not None:
            raise invalid_template(f"{place}.default", "a seed is drawn, and what is required is given: no default")
    elif kind in FILE_KINDS:
        if default is not None:
            raise invalid_template(f"{place}.default", "a file has no default but what the workflow holds")
        default = held
    else:
        default = _default(rule, held if default is None else default, f"{place}.default")
    return Parameter(name, kind, rule, required, default, inputs, _description(content, f"{place}.description"))


def _inputs(given: Any, graph: Mapping[str, Any], place: str) -> tuple[tuple[str, str], ...]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise invalid_template(place, 'must be NODE.INPUT such as "3.seed", or a list of those')
    found = []
    for name in names:
        node, _, key = name.rpartition(".")
        inputs = graph[node]["inputs"] if node in graph else None
        if inputs is None or key not in inputs:
            raise invalid_template(place, f"the workflow has no input {clean_text(name, 120)}")
        if isinstance(inputs[key], list):
            raise invalid_template(place, f"{clean_text(name, 120)} is a link to another node, not a value")
        found.append((node, key))
    return tuple(found)


def _rule(kind: str, content: Mapping[str, Any], place: str) -> Rule | None:
    match kind:
        case "text":
            low = _bound(content, "low", 0, place, whole=True)
            return Text(int(low), int(_bound(content, "high", PROMPT_LIMIT, place, whole=True, low=max(low, 1))))
        case "whole":
            low = _bound(content, "low", -WHOLE_LIMIT, place, whole=True)
            high = _bound(content, "high", WHOLE_LIMIT, place, whole=True, low=low)
            return Whole(int(low), int(high), int(_bound(content, "step", 1, place, whole=True, low=1)))
        case "number":
            low = _bound(content, "low", -NUMBER_LIMIT, place)
            return Number(low, _bound(content, "high", NUMBER_LIMIT, place, low=low))
        case "choice":
            words = content.get("choices")
            if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
                raise invalid_template(f"{place}.choices", "must be a list of texts")
            return Choice(tuple(words))
        case "truth":
            return Truth()
        case "seed":
            return Whole(0, SEED_LIMIT)
    return None


def _bound(
    content: Mapping[str, Any], key: str, default: float, place: str, *, whole: bool = False, low: float | None = None
) -> float:
    value = content.get(key, default)
    kind = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kind):
        raise invalid_template(f"{place}.{key}", f"must be a {'whole ' if whole else ''}number")
    if low is not None and value < low:
        raise invalid_template(f"{place}.{key}", f"must be at least {low:g}")
    return value


def _default(rule: Rule | None, value: Any, place: str) -> Any:
    if rule is None:
        return value
    try:
        return rule.read("default", value, form=False)
    except GenflowError as error:
        raise invalid_template(place, error.message.removeprefix("default: ")) from None


def _description(content: Mapping[str, Any], place: str) -> str | None:
    text = content.get("description")
    if text is not None and not isinstance(text, str):
        raise invalid_template(place, "must be a text")
    return text


def _only(content: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for key in content:
        if key not in known:
            raise invalid_template(f"{place}{clean_text(str(key), 80)}", f"is not known; known are {', '.join(known)}")
