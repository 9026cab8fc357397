"""Templates: parameters become a workflow."""

from genflow.templates.parameters import Parameters, invalid_parameter, read_parameters
from genflow.templates.portrait import portrait_workflow

__all__ = ["Parameters", "invalid_parameter", "portrait_workflow", "read_parameters"]
