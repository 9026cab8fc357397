"""The files of a job on their way to a server and back: inputs up, outputs into the store."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator
from uuid import UUID

from genflow import failpoints
from genflow.comfy import OutputGone
from genflow.errors import GenflowError
from genflow.fleet import FleetServer
from genflow.protocol import Output, output_id
from genflow.queue.records import InputFile, StoredOutput, Work
from genflow.worker.run import JobRun
from genflow.worker.tools import Tools

EXTENSIONS = {"image/jpeg": "jpg", "image/png": "png", "image/webp": "webp"}


def input_folder(job_id: UUID) -> str:
    """The folder, under a server's input folder, that holds this job's inputs alone."""
    return f"genflow/{job_id}"


def input_name(file: InputFile) -> str:
    """An input's name on a server: it holds the hash, so that an upload is safe to repeat."""
    extension = EXTENSIONS.get(file.content_type) or (mimetypes.guess_extension(file.content_type) or ".bin")[1:]
    return f"{file.hash.hex()[:32]}.{extension}"


async def upload_inputs(tools: Tools, run: JobRun, server: FleetServer, work: Work) -> list[tuple[str, bytes]]:
    """Put those inputs on the server that are not there yet; the names that were written, each with its hash.

    Raises the errors of `ComfyServer.upload` and of the store.
    """
    there = {file.hash for file in work.uploads if (file.server_id, file.boot) == (server.id, server.boot)}
    written: list[tuple[str, bytes]] = []
    for file in work.inputs:
        if file.hash in there:
            continue
        if not run.hold.allows():
            await tools.ledger.renew(run.hold)
        name = await server.comfy.upload(
            input_name(file), input_folder(work.job_id), _leaving(tools, file), file.size, run.hold.allows
        )
        written.append((name, file.hash))
    return written


def input_names(work: Work) -> dict[UUID, str]:
    """For each input asset of the job, what a node is told to load."""
    return {file.asset_id: f"{input_folder(work.job_id)}/{input_name(file)}" for file in work.inputs}


def results(outputs: list[Output]) -> list[Output]:
    """The outputs that count as results: all but what stands in a temporary folder."""
    return [output for output in outputs if output.text is not None or output.folder_type != "temp"]


async def store_output(tools: Tools, run: JobRun, server: FleetServer, output: Output) -> StoredOutput:
    """Bring one output into the store. Raises OutputGone, and the errors of `ComfyServer.view` and of the store."""
    if output.text is not None:
        text = output.text.encode()
        if not text:
            raise OutputGone(f"the text of node {output.node_id} is empty")
        blob = await tools.store.put(_once(text))
        name, content_type = f"{output.node_id}-{output.key}-{output.index}.txt", "text/plain; charset=utf-8"
    else:
        blob = await tools.store.put(_while_held(run, server.comfy.view(output)))
        name = output.filename
        content_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return StoredOutput(
        id=output_id(run.hold.job_id, output.node_id, output.key, output.index),
        hash=blob.hash,
        sha256=blob.sha256,
        size=blob.size,
        node_id=output.node_id,
        key=output.key,
        index=output.index,
        name=name,
        type=output_type(output.key, name, content_type),
        content_type=content_type,
    )


def output_type(key: str, name: str, content_type: str) -> str:
    """The Comfy API v2's kind of an output."""
    if name.endswith(".latent") or key == "latents":
        return "latent"
    kind = content_type.partition("/")[0]
    return kind if kind in ("image", "video", "audio", "text") else "file"


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _leaving(tools: Tools, file: InputFile) -> AsyncIterator[bytes]:
    async for chunk in tools.store.read(file.hash):
        middle = len(chunk) // 2
        yield chunk[:middle]
        failpoints.hit("upload.in")
        yield chunk[middle:]


async def _while_held(run: JobRun, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        failpoints.hit("download.in")
        run.check()
        yield chunk


def is_storage_trouble(error: GenflowError) -> bool:
    """Whether the store, not the job, is to blame."""
    return error.status >= 500
