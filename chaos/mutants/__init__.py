"""genflow with one rule broken: what chaos must see. Each is a small edit of a copy of the source."""

from chaos.mutants.table import MUTANTS, Edit, Mutant

__all__ = ["MUTANTS", "Edit", "Mutant"]
