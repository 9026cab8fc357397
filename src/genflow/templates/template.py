"""What every template is: parameters with their rules, and the workflow that they make. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from genflow.templates.parameters import Choice, Rule, Text, Truth, random_seed
from genflow.workflow import AssetRef

FILE_KINDS = frozenset({"asset", "photo"})
"""Kinds whose value is a file. A photo is cleaned before it goes anywhere: upright, sRGB, no metadata."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `rule` is None for a file; `inputs` are the (node, input) pairs that it sets."""

    name: str
    kind: str
    rule: Rule | None
    required: bool = False
    default: Any = None
    inputs: tuple[tuple[str, str], ...] = ()
    description: str | None = None

    @property
    def is_file(self) -> bool:
        """Whether its value is a file."""
        return self.kind in FILE_KINDS

    def as_json(self) -> dict[str, Any]:
        """The parameter as lists show it; what does not apply to its kind is null."""
        rule = self.rule
        bounded = rule is not None and not isinstance(rule, Choice | Truth)
        return {
            "name": self.name,
            "kind": self.kind,
            "required": self.required,
            "default": self.default,
            "low": getattr(rule, "low", None) if bounded else None,
            "high": getattr(rule, "high", None) if bounded else None,
            "step": getattr(rule, "step", None),
            "choices": list(rule.words) if isinstance(rule, Choice) else None,
            "description": self.description,
        }


class Template(Protocol):
    """Parameters in, a workflow out."""

    @property
    def name(self) -> str:
        """The name that requests use."""
        ...

    @property
    def description(self) -> str | None:
        """What it makes, for people."""
        ...

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters, in the order that people read them."""
        ...

    def read(
        self, given: Mapping[str, Any], *, form: bool = False, draw_seed: Callable[[], int] = random_seed
    ) -> dict[str, Any]:
        """Every value by name, defaults and a drawn seed included; a file as it was given.

        `form`: the values are texts. Raises GenflowError `invalid_parameter` as `parameters.read_parameters` does.
        """
        ...

    def workflow(self, values: Mapping[str, Any], files: Mapping[str, AssetRef]) -> str:
        """The workflow's text for what `read` returned; `files` stand for the values of file parameters."""
        ...


def as_json(template: Template) -> dict[str, Any]:
    """A template as lists show it."""
    return {
        "name": template.name,
        "description": template.description,
        "parameters": [parameter.as_json() for parameter in template.parameters],
    }


def kind_of(rule: Rule) -> str:
    """The word for a rule's kind of value."""
    return {Text: "text", Choice: "choice", Truth: "truth"}.get(type(rule), type(rule).__name__.lower())
