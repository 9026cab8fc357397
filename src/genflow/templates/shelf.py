"""All templates of one process: the portrait, and the operator's own from a folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genflow.errors import GenflowError, clean_text
from genflow.settings import PortraitSettings
from genflow.templates.own import OwnTemplate, invalid_template, read_template
from genflow.templates.portrait import PortraitTemplate
from genflow.templates.template import Template
from genflow.workflow import read_json

WORKFLOW_SUFFIX = ".api.json"
"""What a workflow's file in the folder ends in; it is no template by itself."""


def open_shelf(folder: Path | None, portrait: PortraitSettings) -> dict[str, Template]:
    """The templates by name. GenflowError `template_invalid` for the first bad file, naming file and field."""
    shelf: dict[str, Template] = {"portrait": PortraitTemplate(portrait)}
    if folder is None:
        return shelf
    try:
        files = sorted(path for path in folder.iterdir() if _is_template(path))
    except OSError as error:
        raise _wrong(folder, invalid_template("templates", f"can't be read: {error.strerror or error}")) from None
    for path in files:
        try:
            template = _read(path)
            if template.name in shelf:
                raise invalid_template("name", f"there is a template {template.name} already")
        except GenflowError as error:
            raise _wrong(path, error) from None
        shelf[template.name] = template
    return shelf


def template_of(shelf: Mapping[str, Template], name: Any, *, status: int = 422) -> Template:
    """The template of this name. GenflowError `unknown_template`."""
    if not isinstance(name, str) or name not in shelf:
        shown = clean_text(str(name), 80)
        details = {"field": "template", "reason": "unknown", "limit": sorted(shelf), "got": shown}
        message = f"there is no template {shown!r}; there are {', '.join(sorted(shelf))}"
        raise GenflowError("unknown_template", message, status=status, details=details)
    return shelf[name]


def _is_template(path: Path) -> bool:
    return path.suffix in (".json", ".toml") and not path.name.endswith(WORKFLOW_SUFFIX)


def _read(path: Path) -> OwnTemplate:
    text = _text(path)
    try:
        document = tomllib.loads(text) if path.suffix == ".toml" else read_json(text)
    except ValueError as error:
        raise invalid_template("document", f"can't be read: {error}") from None
    return read_template(path.stem, document, lambda named: _text(path.parent / named))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise invalid_template("workflow", f"{path.name} can't be read: {clean_text(said, 200)}") from None


def _wrong(path: Path, error: GenflowError) -> GenflowError:
    return GenflowError(error.code, f"{path}: {error.message}", details={**(error.details or {}), "file": str(path)})
