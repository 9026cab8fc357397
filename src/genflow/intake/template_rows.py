"""Rows of a jobs file over a template: parameters by name, and the files that stand beside the jobs file.

The same row is the same job: without an id of its own, its id follows from the template, the values that it sets and
the contents of its files, wherever they lie.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from blake3 import blake3

from genflow.errors import GenflowError, clean_text
from genflow.templates.template import FILE_KINDS
from genflow.workflow import AssetRef, read_json

_NAMESPACE = UUID("b1a4b0a2-6a0e-5f0e-8c55-0c1a1d6b7e03")
_NUMBERS = frozenset({"whole", "number", "seed", "truth"})

Kinds = Mapping[str, Mapping[str, str]]
"""The kind of each parameter of each template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRow:
    """One row over a template. `cells`: the values are CSV's texts, and not typed yet."""

    line: int
    id: UUID | None
    template: str
    values: dict[str, Any] = field(default_factory=dict)
    cells: bool = False
    priority: int = 0
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file beside the jobs file: its path as the row names it, where it is, and the BLAKE3 of its bytes."""

    named: str
    path: Path
    hash: str


def row_id(template: str, values: Mapping[str, Any], files: Mapping[str, str]) -> UUID:
    """The id of a row without one; `files` stand for the values that are files, as `blake3:…` or as a URL."""
    return uuid5(_NAMESPACE, json.dumps([template, {**values, **files}], sort_keys=True))


def placed(row: TemplateRow, kinds: Kinds, folder: Path, hashes: dict[Path, str]) -> TemplateRow:
    """The row with its values typed, its files found, and its id. `hashes` remembers each file that was read.

    GenflowError `jobs_file_invalid` says what is wrong with it. A file is a path relative to `folder`, unless it is a
    URL or an asset's id already; a row with one of those by id keeps no id of its own, for only the service knows its
    bytes.
    """
    known = kinds.get(row.template)
    if known is None:
        raise _wrong(f"there is no template {clean_text(row.template, 80)!r}; there are {', '.join(sorted(kinds))}")
    for name in row.values:
        if name not in known:
            raise _wrong(
                f"the template {row.template} has no parameter {clean_text(name, 80)!r}; it has {', '.join(known)}"
            )
    values: dict[str, Any] = {}
    files: dict[str, str] = {}
    by_id = False
    for name, value in row.values.items():
        if value is None:
            continue
        values[name] = _typed(value, known[name]) if row.cells else value
        if known[name] in FILE_KINDS and isinstance(value, str):
            found = _file(name, value, folder, hashes)
            if isinstance(found, LocalFile):
                values[name], files[name] = found, f"blake3:{found.hash}"
            else:
                by_id = by_id or not _is_url(value)
                files[name] = value
    made = row.id or (None if by_id else row_id(row.template, _plain(values), files))
    return replace(row, id=made, values=values, cells=False)


def placed_all(rows: Sequence[Any], kinds: Kinds, folder: Path) -> tuple[list[Any], list[tuple[int, str]]]:
    """The rows as `placed` leaves them, other rows as they are; and the lines that can't be jobs, with the reason."""
    hashes: dict[Path, str] = {}
    found: list[Any] = []
    bad: list[tuple[int, str]] = []
    for row in rows:
        try:
            found.append(placed(row, kinds, folder, hashes) if isinstance(row, TemplateRow) else row)
        except GenflowError as error:
            bad.append((row.line, error.message))
    return found, bad


def sent(row: TemplateRow, assets: Mapping[str, UUID]) -> dict[str, Any]:
    """The values as they go to a service, each local file as its asset; `assets` are by BLAKE3."""
    return {
        name: AssetRef(assets[value.hash], f"blake3:{value.hash}", value.named).as_json()
        if isinstance(value, LocalFile)
        else value
        for name, value in row.values.items()
    }


def local_files(rows: Sequence[Any]) -> dict[str, LocalFile]:
    """Each file that the rows name, once, by its BLAKE3."""
    found = [value for row in rows if isinstance(row, TemplateRow) for value in row.values.values()]
    return {value.hash: value for value in reversed(found) if isinstance(value, LocalFile)}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not isinstance(value, LocalFile)}


def _is_url(value: str) -> bool:
    return value.startswith(("http://", "https://"))


def _file(name: str, value: str, folder: Path, hashes: dict[Path, str]) -> LocalFile | None:
    """The file beside the jobs file; None for a URL or an asset's id."""
    if _is_url(value):
        return None
    try:
        UUID(value)
    except ValueError:
        pass
    else:
        return None
    path = folder / value
    try:
        if path not in hashes:
            hashes[path] = blake3(max_threads=blake3.AUTO).update_mmap(path).hexdigest()
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _wrong(f"{name}: the file {clean_text(value, 200)} can't be read: {clean_text(said, 200)}") from None
    return LocalFile(value, path, hashes[path])


def _typed(cell: Any, kind: str) -> Any:
    """A cell as the kind of value that the parameter takes; what doesn't fit stays a text, and is refused as one."""
    if kind not in _NUMBERS:
        return cell
    try:
        return read_json(cell.lower() if kind == "truth" else cell)
    except ValueError:
        return cell


def _wrong(message: str) -> GenflowError:
    return GenflowError("jobs_file_invalid", message, status=422)
