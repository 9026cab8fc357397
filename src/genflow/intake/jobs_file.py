"""Jobs files: JSONL with a job a line, or CSV with a job a row and a column for each input that is set.

Pure but for the reading of workflows that a file names. A file is taken whole or not at all: every bad line is named
by its number.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from genflow.edits import set_inputs
from genflow.errors import GenflowError, clean_text
from genflow.intake.admission import labels
from genflow.intake.template_rows import Kinds, TemplateRow, placed_all
from genflow.workflow import parse_workflow, read_json, split_object

MOST_ROWS = 10_000
MOST_BYTES = 256 * 1024 * 1024
"""Bytes of all workflows of one file together."""
TOLD_LINES = 20
"""Bad lines that are named; of more, only how many there are."""
PRIORITIES = range(-100, 101)

_COLUMNS = ("id", "workflow", "template", "priority")
_OVER_TEMPLATE = "a row over a template goes through a service, or `genflow run`"
_NAMESPACE = UUID("5d0f3a52-7a0c-5b3e-9d64-2f4f5d1f7c11")
_KEYS = ("id", "workflow", "template", "set", "priority", "metadata")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileJob:
    """One job of a file. `workflow` is the exact text with the row's values set; `values` are those values."""

    line: int
    id: UUID
    workflow: str
    values: dict[str, Any] = field(default_factory=dict)
    priority: int = 0
    metadata: dict[str, str] = field(default_factory=dict)
    params: dict[str, Any] | None = None
    body: Any = None
    """What tells it from other jobs where that is not its workflow: one that a template made has assets of its own."""


Row = FileJob | TemplateRow


class BadJobsFile(GenflowError):
    """Lines that can't be jobs; nothing of the file was accepted."""

    def __init__(self, name: str, bad: Sequence[tuple[int, str]]) -> None:
        told = [f"line {line}: {why}" for line, why in bad[:TOLD_LINES]]
        if len(bad) > TOLD_LINES:
            told.append(f"and {len(bad) - TOLD_LINES} more")
        super().__init__(
            "jobs_file_invalid",
            f"{clean_text(name, 200)}: nothing was enqueued, for these lines can't be jobs:\n  " + "\n  ".join(told),
            status=422,
            details={"lines": [{"line": line, "reason": why} for line, why in bad[:TOLD_LINES]]},
        )


def read_jobs_file(path: Path, *, workflow: Path | None = None) -> list[FileJob]:
    """The jobs of a file of workflows, in its order. Raises as `read_rows` does, and where a row has a template."""
    rows = read_rows(path, workflow=workflow)
    if bad := [(row.line, _OVER_TEMPLATE) for row in rows if isinstance(row, TemplateRow)]:
        raise BadJobsFile(path.name, bad)
    return [row for row in rows if isinstance(row, FileJob)]


def read_rows(path: Path, *, workflow: Path | None = None, template: str | None = None) -> list[Row]:
    """The rows of a file, in its order. `workflow` or `template` is what rows without one of their own run.

    A name that ends in `.csv` is CSV, all else JSONL. Raises BadJobsFile, or GenflowError `jobs_file_invalid` where the
    file itself can't be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None
    reader = _Reader(path, workflow, template)
    lines = reader.csv(text) if path.suffix.lower() == ".csv" else reader.jsonl(text)
    return reader.all(lines)


def with_files(path: Path, rows: Sequence[Row], kinds: Kinds) -> list[Row]:
    """The rows of the file at `path`, the values of those over templates typed, and their files found beside it.

    Raises BadJobsFile.
    """
    found, bad = placed_all(rows, kinds, path.parent)
    if bad:
        raise BadJobsFile(path.name, bad)
    return found


def read_jsonl(text: str, name: str) -> list[Row]:
    """The rows of JSONL that came as text, each with its workflow in it. Raises as `read_rows` does."""
    reader = _Reader(Path(name), None, None, by_path=False)
    return reader.all(reader.jsonl(text))


def job_of(value: Mapping[str, Any], exact: Mapping[str, str], *, load: Callable[[str], str]) -> FileJob:
    """The job of one object with a workflow, as `row_of` reads it; a template is refused."""
    row = row_of(value, exact, line=0, load=load, common=None)
    if isinstance(row, TemplateRow):
        raise _wrong(_OVER_TEMPLATE)
    return row


def row_of(
    value: Mapping[str, Any],
    exact: Mapping[str, str],
    *,
    line: int,
    load: Callable[[str], str],
    common: str | None,
    template: str | None = None,
) -> Row:
    """The row of one line's object. `exact` holds each value's own text, `load` reads a workflow by its path.

    Raises GenflowError saying what is wrong with it.
    """
    for key in value:
        if key not in _KEYS:
            raise _wrong(f"unknown key {clean_text(key, 80)!r}; known keys: {', '.join(_KEYS)}")
    values = value.get("set") or {}
    if not isinstance(values, dict):
        raise _wrong('“set” must be an object such as {"3.seed": 42}')
    priority = value.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int) or priority not in PRIORITIES:
        raise _wrong(f"“priority” must be a whole number from {PRIORITIES[0]} to {PRIORITIES[-1]}, not {priority!r}")
    metadata = labels(value.get("metadata"))
    named, given = value.get("workflow"), value.get("template")
    if named is None and (given is not None or template is not None):
        over = template if given is None else given
        if not isinstance(over, str) or not over:
            raise _wrong("“template” must be the name of a template")
        made = _given_id(value.get("id"))
        return TemplateRow(
            line=line, id=made, template=over, values=dict(values), priority=priority, metadata=metadata
        )  # fmt: skip
    if given is not None:
        raise _wrong("it names a workflow and a template: only one of them can be run")
    if isinstance(named, str):
        text = load(named)
    elif isinstance(named, dict):
        text = exact["workflow"]
    elif named is None and common is not None:
        text = common
    else:
        raise _wrong("“workflow” must be a path or an object of nodes (or name one for all rows with --workflow)")
    text = set_inputs(text, values) if values else text
    parse_workflow(text)
    return FileJob(
        line=line,
        id=_given_id(value.get("id")) or _id_of(text),
        workflow=text,
        values=dict(values),
        priority=priority,
        metadata=metadata,
    )


def _id_of(text: str) -> UUID:
    """The id that follows from the workflow as it will run: the same row is the same job."""
    return uuid5(_NAMESPACE, json.dumps(read_json(text), sort_keys=True))


def _given_id(given: Any) -> UUID | None:
    if given is None or given == "":
        return None
    try:
        made = UUID(given)
    except (ValueError, AttributeError, TypeError):
        made = None
    if made is None or str(made) != given:
        raise _wrong(f"“id” must be a lowercase UUID with hyphens, not {clean_text(str(given), 80)!r}")
    return made


def _content(row: Row) -> tuple[Any, ...]:
    """What two rows under one id must share."""
    return (row.template, row.values, row.metadata) if isinstance(row, TemplateRow) else (row.workflow, row.metadata)


class _Reader:
    """Reads the lines of one file; each workflow that they name is read once."""

    def __init__(self, path: Path, workflow: Path | None, template: str | None, *, by_path: bool = True) -> None:
        self._path = path
        self._by_path = by_path
        self._texts: dict[Path, str] = {}
        self._template = template
        self._common = None if workflow is None else self._read(workflow)

    def all(self, lines: Iterator[tuple[int, Row | GenflowError]]) -> list[Row]:
        jobs: list[Row] = []
        known: dict[UUID, Row] = {}
        bad: list[tuple[int, str]] = []
        size = 0
        for line, job in lines:
            if isinstance(job, GenflowError):
                bad.append((line, job.message))
                continue
            before = job if job.id is None else known.setdefault(job.id, job)
            if _content(before) != _content(job):
                bad.append((line, f"the id {job.id} is that of line {before.line}, with another workflow"))
            jobs.append(job)
            size += len(job.workflow) if before is job and isinstance(job, FileJob) else 0
            if len(jobs) > MOST_ROWS or size > MOST_BYTES:
                raise BadJobsFile(
                    self._path.name,
                    [(line, f"a file has at most {MOST_ROWS} rows and {MOST_BYTES} bytes of workflows: split it")],
                )
        if bad:
            raise BadJobsFile(self._path.name, bad)
        if not jobs:
            raise GenflowError("jobs_file_invalid", f"{self._path.name} holds no job", status=422)
        return jobs

    def jsonl(self, text: str) -> Iterator[tuple[int, Row | GenflowError]]:
        """The lines of JSONL; empty ones are passed over."""
        for line, content in enumerate(text.split("\n"), 1):
            if content.strip():
                yield line, self._job(line, content)

    def _job(self, line: int, content: str) -> Row | GenflowError:
        try:
            fields = split_object(content)
            value = {key: each for key, (each, _) in fields.items()}
            exact = {key: text for key, (_, text) in fields.items()}
            return row_of(value, exact, line=line, load=self._load, common=self._common, template=self._template)
        except GenflowError as error:
            return error
        except ValueError as error:
            return _wrong(f"it is no JSON object: {error}")

    def csv(self, text: str) -> Iterator[tuple[int, Row | GenflowError]]:
        """The rows of CSV under a head of names: those of `_COLUMNS`, and NODE.INPUT or a parameter for what is set."""
        rows = csv.reader(text.split("\n"))
        head = [name.strip() for name in next(rows, [])]
        over = self._template is not None or "template" in head
        unknown = [name for name in head if name not in _COLUMNS and "." not in name and not (over and name)]
        if not head or unknown or len(set(head)) != len(head):
            told = f"unknown column {unknown[0]!r}" if unknown else "the head must name each column once"
            yield (
                1,
                _wrong(
                    f"{told}; columns are {', '.join(_COLUMNS)} and NODE.INPUT such as 3.seed"
                    " (or a template's parameters, with a column “template” or --template NAME)"
                ),
            )
            return
        for row in rows:
            if any(cell.strip() for cell in row):
                yield rows.line_num, self._csv_job(rows.line_num, head, row)

    def _csv_job(self, line: int, head: Sequence[str], given: Sequence[str]) -> Row | GenflowError:
        if len(given) != len(head):
            return _wrong(f"it has {len(given)} cells, the head has {len(head)}")
        cells = {name: cell.strip() for name, cell in zip(head, given, strict=True) if cell.strip()}
        try:
            value: dict[str, Any] = {key: cells.pop(key) for key in ("id", "workflow", "template") if key in cells}
            if "priority" in cells:
                value["priority"] = _typed(cells.pop("priority"), 0)
            if "workflow" not in value and (self._template is not None or "template" in value):
                value["set"] = cells
                row = row_of(value, {}, line=line, load=self._load, common=None, template=self._template)
                return replace(row, cells=True) if isinstance(row, TemplateRow) else row
            text = self._load(value["workflow"]) if "workflow" in value else self._common
            if text is None:
                raise _wrong("it names no workflow: give a column “workflow” or --workflow FILE")
            graph = parse_workflow(text)
            value["set"] = {name: _typed(cell, _held(graph, name)) for name, cell in cells.items()}
            return row_of(value, {}, line=line, load=self._load, common=self._common)
        except GenflowError as error:
            return error

    def _load(self, named: str) -> str:
        if not self._by_path:
            raise _wrong("“workflow” must be an object of nodes here, not the path of a file")
        return self._read(self._path.parent / named)

    def _read(self, path: Path) -> str:
        if path not in self._texts:
            try:
                self._texts[path] = path.read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError, ValueError) as error:
                raise _unreadable(path, error) from None
        return self._texts[path]


def _held(graph: Mapping[str, Any], name: str) -> Any:
    """What the workflow holds at NODE.INPUT; None where it holds nothing."""
    node, _, key = name.rpartition(".")
    inputs = graph.get(node, {}).get("inputs", {})
    return inputs.get(key) if isinstance(inputs, dict) else None


def _typed(cell: str, held: Any) -> Any:
    """A cell as the kind of value that the workflow holds there."""
    if isinstance(held, str):
        return cell
    try:
        value = read_json(cell)
    except ValueError:
        value = cell
    if isinstance(held, bool) and not isinstance(value, bool):
        value = {"true": True, "false": False}.get(cell.lower(), value)
    kind = bool if isinstance(held, bool) else int | float if isinstance(held, int | float) else object
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool) and held is not None):
        raise _wrong(f"{clean_text(cell, 80)!r} is no {'truth value' if kind is bool else 'number'}")
    return value


def _wrong(message: str) -> GenflowError:
    return GenflowError("jobs_file_invalid", message, status=422)


def _unreadable(path: Path, error: Exception) -> GenflowError:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return GenflowError("jobs_file_invalid", f"{path} can't be read: {clean_text(said, 200)}", status=422)
