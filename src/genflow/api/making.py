"""A template's parameters become a job's workflow: each file that they name is looked up or fetched, photos cleaned.

Every way in makes its jobs here: the portraits' route, that of any template, and the rows of a jobs file.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit
from uuid import UUID, uuid4

from genflow.api import photo as photos
from genflow.api.ids import canonical_uuid
from genflow.errors import GenflowError, at_field, clean_text
from genflow.filenames import ASSET_TYPE
from genflow.intake.admission import check_runnable
from genflow.outside import Allowed, Opener, refused_url
from genflow.queue import Queue
from genflow.queue.records import AssetRecord
from genflow.settings import Settings
from genflow.storage.store import Store, StoredBlob
from genflow.templates import Template, invalid_parameter, open_shelf
from genflow.templates.parameters import random_seed, shown
from genflow.workflow import AssetRef, missing_asset, parse_workflow, read_asset_ref

PHOTOS_AT_ONCE = 2
"""Photos decoded at the same time in one process; each may take sixteen bytes of memory a pixel."""

_CHUNK_BYTES = 256 * 1024
_PHOTO_TYPES = ("image/jpeg", "image/png", "image/webp")
_VAGUE_TYPES = ("application/octet-stream", "binary/octet-stream")
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,100}/[a-z0-9!#$&^_.+-]{1,100}")


@dataclass(frozen=True, slots=True)
class Source:
    """A file as a request names it. `identity` tells it from other files: an asset by its bytes, a URL by its text."""

    identity: str
    shown: str
    asset: AssetRecord | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """What a template made. `params` are all values, files by their asset's id; `body` tells it from other requests."""

    workflow: str
    assets: tuple[UUID, ...]
    params: dict[str, Any]
    body: Any


@dataclass(slots=True)
class Files:
    """The files that one request has looked up and made ready, so that each is taken once."""

    tenant: int
    sources: dict[str, Source] = field(default_factory=dict)
    ready: dict[tuple[str, str], AssetRef] = field(default_factory=dict)
    turns: dict[tuple[str, str], asyncio.Lock] = field(default_factory=dict)


class Maker:
    """Makes jobs of templates for one process."""

    def __init__(self, queue: Queue, store: Store, settings: Settings, shelf: Mapping[str, Template]) -> None:
        self._queue = queue
        self._store = store
        self.shelf = shelf
        self.opener = Opener(Allowed.of(word.strip() for word in settings.fetch_allow.split(",") if word.strip()))
        self._photo_limits = photos.Limits(settings.max_photo_bytes, settings.max_photo_pixels, settings.min_photo_side)
        self._fetch_limit = settings.max_fetch_bytes
        self._lenient = settings.lenient
        self.photo_turns = asyncio.Semaphore(PHOTOS_AT_ONCE)

    @classmethod
    def of(cls, queue: Queue, store: Store, settings: Settings) -> Maker:
        """With the templates that the settings name. GenflowError `template_invalid`, `setting_invalid`."""
        return cls(queue, store, settings, open_shelf(settings.templates, settings.portrait))

    async def make(
        self,
        template: Template,
        given: Mapping[str, Any],
        files: Files,
        *,
        draw_seed: Callable[[], int] = random_seed,
    ) -> Made:
        """The job of these values. Whatever can be refused without looking into a file is refused before.

        Raises GenflowError: `invalid_parameter`, `invalid_workflow` where no server can run it, and what `source` and
        `ready` raise.
        """
        values = template.read(given, draw_seed=draw_seed)
        named = [each for each in template.parameters if each.is_file and given.get(each.name) is not None]
        unknown = {each.name: AssetRef(uuid4()) for each in named}
        graph = parse_workflow(template.workflow(values, unknown))
        await check_runnable(self._queue, graph, await self._queue.known_nodes(), lenient=self._lenient)
        # A seed that was drawn for it tells a request from no other.
        seeds = [each.name for each in template.parameters if each.kind == "seed"]
        drawn = {name: None for name in seeds if given.get(name) is None}
        sources = {each.name: await self.source(given[each.name], files, each.name) for each in named}
        refs = {each.name: await self.ready(sources[each.name], files, each.kind, each.name) for each in named}
        return Made(
            workflow=template.workflow(values, refs),
            assets=tuple(ref.id for ref in refs.values()),
            params=values | {name: str(ref.id) for name, ref in refs.items()},
            body=[template.name, values | drawn | {name: source.identity for name, source in sources.items()}],
        )

    async def source(self, given: Any, files: Files, name: str) -> Source:
        """The file that a value names: an asset's id, a `core/ASSET` object, or a URL, which is not asked yet.

        Raises GenflowError `invalid_parameter` or `missing_asset`, naming the field `name`.
        """
        if isinstance(given, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", given):
            return Source(given, given, url=given)
        path = None
        if isinstance(given, Mapping) and given.get("__type") == ASSET_TYPE:
            ref = read_asset_ref(given, name)
            path, given = ref.file_path, str(ref.id)
        if not isinstance(given, str):
            raise invalid_parameter(name, "not_a_file", "must be the id of an asset or a URL", got=shown(given))
        known = files.sources.get(given)
        if known is None:
            wanted = canonical_uuid(given)
            found = {} if wanted is None else await self._queue.assets([wanted], tenant=files.tenant)
            asset = next(iter(found.values()), None)
            if asset is None or asset.hash is None:
                told = clean_text(given, 80)
                raise missing_asset(name, "unknown", f"there is no asset {told}", got=told)
            known = files.sources[given] = Source(f"blake3:{asset.hash.hex()}", given, asset=asset)
        return known if path is None else Source(known.identity, clean_text(path, 1_000), asset=known.asset)

    async def ready(self, source: Source, files: Files, kind: str, name: str) -> AssetRef:
        """The asset that a server gets for a file: a URL fetched, a photo cleaned.

        Raises GenflowError naming the field `name`: those of `Opener.get`, `clean_photo` and the store.
        """
        key = (kind, source.identity)
        async with files.turns.setdefault(key, asyncio.Lock()):
            if key not in files.ready:
                try:
                    files.ready[key] = await self._ready(source, files.tenant, photo=kind == "photo")
                except GenflowError as error:
                    raise at_field(error, name) if error.status < 500 else error from None
        return files.ready[key]

    async def _ready(self, source: Source, tenant: int, *, photo: bool) -> AssetRef:
        if source.asset is not None:
            asset = source.asset
            if not photo:
                return AssetRef(asset.id, source.identity)
            if asset.content_type not in (*_PHOTO_TYPES, *_VAGUE_TYPES):
                raise photos.unsupported(f"an asset of the type {asset.content_type}")
            if asset.kind == "output":
                return AssetRef(asset.id, source.identity)  # a server made it: no camera's words are in it
            return await self._clean_asset(asset, tenant)
        assert source.url is not None  # noqa: S101 - a source has one of the two
        if photo:
            return await self._fetch_photo(source.url, tenant)
        asset_id, blob = await self.fetch(source.url, tenant)
        return AssetRef(asset_id, f"blake3:{blob.hash.hex()}")

    async def clean(self, file: BinaryIO, tenant: int) -> AssetRef:
        """The asset of a photo, cleaned and in the store. Raises what `clean_photo` and the store raise."""
        async with self.photo_turns:
            photo = await asyncio.to_thread(photos.clean_photo, file, self._photo_limits)
        asset, blob = await self._keep(_one_chunk(photo.data), "photo.jpg", photos.CONTENT_TYPE, tenant)
        return AssetRef(asset, f"blake3:{blob.hash.hex()}")

    async def fetch(self, url: str, tenant: int, *, name: str | None = None) -> tuple[UUID, StoredBlob]:
        """The asset of what is at a URL, called `name` or as the URL's last part. Raises what `Opener.get` raises."""
        async with self.opener.get(url, limit_bytes=self._fetch_limit) as fetched:
            kind = fetched.content_type if _MEDIA_TYPE.fullmatch(fetched.content_type) else "application/octet-stream"
            return await self._keep(fetched.chunks, name or _name_of(url), kind, tenant)

    async def add_file(self, path: Path, tenant: int = 1) -> UUID:
        """The asset of a file of this machine. OSError where it can't be read."""
        with path.open("rb") as file:
            asset, _ = await self._keep(_chunks_of(file), path.name, "application/octet-stream", tenant)
        return asset

    async def _clean_asset(self, asset: AssetRecord, tenant: int) -> AssetRef:
        if asset.size > self._photo_limits.bytes:
            raise photos.too_large(self._photo_limits.bytes, asset.size)
        assert asset.hash is not None  # noqa: S101 - `source` has looked
        data = io.BytesIO()
        async for chunk in self._store.read(asset.hash):
            data.write(chunk)
        return await self.clean(data, tenant)

    async def _fetch_photo(self, url: str, tenant: int) -> AssetRef:
        data = io.BytesIO()
        async with self.opener.get(url, limit_bytes=self._photo_limits.bytes) as fetched:
            if fetched.content_type not in (*_PHOTO_TYPES, *_VAGUE_TYPES):
                message = f"is of the type {clean_text(fetched.content_type, 80)}; accepted are {photos.ACCEPTED}"
                raise refused_url("content_type", message, got=fetched.content_type)
            async for chunk in fetched.chunks:
                data.write(chunk)
        return await self.clean(data, tenant)

    async def _keep(
        self, chunks: AsyncIterator[bytes], name: str, content_type: str, tenant: int
    ) -> tuple[UUID, StoredBlob]:
        began = await self._queue.files.clock()
        blob = await self._store.put(chunks)
        kind = content_type.partition("/")[0]
        asset = await self._queue.files.add(
            blob,
            name=name,
            type=kind if kind in ("image", "video", "audio", "text") else "file",
            content_type=content_type,
            began=began,
            tenant=tenant,
        )
        return asset, blob


def _name_of(url: str) -> str:
    """What the last part of a URL's path calls the file."""
    last = unquote(urlsplit(url).path).rpartition("/")[2]
    return clean_text("".join(c for c in last if c.isprintable() and c not in '\\<>:"|?*'), 200).strip(". ") or "file"


async def _one_chunk(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _chunks_of(file: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
        yield chunk
