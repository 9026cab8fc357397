"""Templates: parameters become a workflow. The portrait is one; an operator adds others."""

from genflow.templates.parameters import Parameters, invalid_parameter, read_parameters
from genflow.templates.portrait import portrait_workflow
from genflow.templates.shelf import open_shelf, template_of
from genflow.templates.template import Template

__all__ = [
    "Parameters",
    "Template",
    "invalid_parameter",
    "open_shelf",
    "portrait_workflow",
    "read_parameters",
    "template_of",
]
