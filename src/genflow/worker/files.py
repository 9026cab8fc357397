"""The files of a job on their way to a server and back: inputs up, outputs into the store."""

from __future__ import annotations

from collections.abc import AsyncIterator

from genflow import failpoints
from genflow.comfy import OutputGone
from genflow.errors import GenflowError
from genflow.fleet import FleetServer
from genflow.media import content_type_of, output_type
from genflow.outputs import Output, output_id
from genflow.queue.records import InputFile, StoredOutput, Work, input_folder
from genflow.worker.run import JobRun
from genflow.worker.tools import Tools


async def upload_inputs(tools: Tools, run: JobRun, server: FleetServer, work: Work) -> list[tuple[str, bytes]]:
    """Put those inputs on the server that are not there yet; the names that were written, each with its hash.

    Raises NotHeld, and the errors of `ComfyServer.upload` and of the store.
    """
    here = [file.name for file in work.uploads if (file.server_id, file.boot) == (server.id, server.boot)]
    there = {name.rpartition("/")[2] for name in here}
    folder = input_folder(work.job_id)
    written: list[tuple[str, bytes]] = []
    if missing := {f"{folder}/{file.name}": file.hash for file in work.inputs if file.name not in there}:
        await tools.ledger.upload_begun(run.hold, server_id=server.id, files=list(missing.items()))
    for file in work.inputs:
        if file.name in there:
            continue
        if not run.hold.allows():
            await tools.ledger.renew(run.hold)
        name = await server.comfy.upload(file.name, folder, _leaving(tools, file), file.size, run.hold.allows)
        written.append((name, file.hash))
        there.add(file.name)  # another asset of the same job may be over the same bytes
    return written


async def inputs_gone(server: FleetServer, work: Work) -> list[str]:
    """The names of those inputs that were uploaded to this server and are not there now. Raises ComfyError."""
    sizes = {file.name: file.size for file in work.inputs}
    folder = input_folder(work.job_id)
    gone = []
    for name, size in sorted(sizes.items()):
        look = server.comfy.view(Output("", "", 0, name, folder, "input"))
        try:
            async for _ in look:
                break
        except OutputGone:
            if size:
                gone.append(f"{folder}/{name}")
        finally:
            await look.aclose()
    return gone


INLINE_TEXT = 8_192
"""Texts of up to so many characters stand in the job itself, beside their file."""


def results(outputs: list[Output], *, previews: bool) -> list[Output]:
    """The outputs that count as results: temporary files only where they are asked for."""
    return [output for output in outputs if previews or output.text is not None or output.folder_type != "temp"]


async def store_output(tools: Tools, run: JobRun, server: FleetServer, output: Output) -> StoredOutput:
    """Bring one output into the store. Raises OutputGone, and the errors of `ComfyServer.view` and of the store."""
    if output.text is not None:
        blob = await tools.store.put(_once(output.text.encode()))
        name, content_type = f"{output.node_id}-{output.key}-{output.index}.txt", "text/plain; charset=utf-8"
    else:
        blob = await tools.store.put(_while_held(run, server.comfy.view(output)))
        name = output.filename
        content_type = content_type_of(name)
    return StoredOutput(
        id=output_id(run.hold.job_id, output.node_id, output.key, output.index),
        hash=blob.hash,
        sha256=blob.sha256,
        size=blob.size,
        node_id=output.node_id,
        key=output.key,
        index=output.index,
        name=name,
        type=output_type(name, content_type),
        content_type=content_type,
        text=output.text if output.text is not None and len(output.text) <= INLINE_TEXT else None,
    )


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
