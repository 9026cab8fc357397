"""Files on a server: uploads as they are, downloads whole or not at all, and the marker of a boot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import UUID, uuid4

import pytest
from aiohttp import web

from genflow.comfy import OutputGone, ServerAnswered, ServerUnreachable, Withheld
from genflow.errors import GenflowError
from genflow.outputs import Output
from tests.unit.wire import Conversation, Double, client, double, peer

PNG = bytes(range(256)) * 4_000
NAME = "6b86b273.png"
FOLDER = "genflow/95ea73c5-d54f-4a12-bc7e-df1ed74f0466"


async def pieces(data: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def test_a_file_arrives_whole_under_its_plain_name_and_the_servers_name_comes_back() -> None:
    seen: list[tuple[str, bytes, dict[str, object]]] = []

    async def stores(request: web.Request) -> web.Response:
        form = await request.post()
        image = form["image"]
        assert isinstance(image, web.FileField)
        seen.append((image.filename, image.file.read(), {key: v for key, v in form.items() if key != "image"}))
        return web.json_response({"name": "other.png", "subfolder": form["subfolder"], "type": "input"})

    async with double() as made:
        made.answers["POST /upload/image"] = stores
        name = await made.client.upload(NAME, FOLDER, pieces(PNG), len(PNG), lambda: True)
        assert name == f"{FOLDER}/other.png"
        assert seen == [(NAME, PNG, {"subfolder": FOLDER, "type": "input", "overwrite": "1"})]


async def test_a_file_without_a_folder_is_named_without_one() -> None:
    async with double() as made:
        made.answers["POST /upload/image"] = (200, {"name": NAME, "subfolder": "", "type": "input"})
        assert await made.client.upload(NAME, "", pieces(PNG), len(PNG), lambda: True) == NAME


async def test_the_length_is_known_before_the_first_byte() -> None:
    async def talk(one: Conversation) -> None:
        await one.read_head()
        await one.read_body()
        await one.say("200 OK", b'{"name": "a.png", "subfolder": "", "type": "input"}')

    async with peer(talk) as made, client(made.url) as comfy:
        assert await comfy.upload("a.png", "s", pieces(PNG), len(PNG), lambda: True) == "a.png"
        (one,) = made.conversations
        assert "transfer-encoding" not in one.headers
        assert len(one.received) == one.size


async def test_the_gate_is_asked_before_each_chunk_and_a_no_leaves_nothing_complete() -> None:
    answers = [True, True, False]

    async def talk(one: Conversation) -> None:
        await one.read_head()

    async with peer(talk) as made, client(made.url) as comfy:
        with pytest.raises(Withheld):
            await comfy.upload(NAME, FOLDER, pieces(PNG, 1_000), len(PNG), lambda: answers.pop(0))
        (one,) = made.conversations
        assert await one.reset is True
        assert 2_000 <= len(one.received) < 3_000


async def test_a_fault_of_the_store_is_raised_as_it_is() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield PNG[:1_000]
        raise GenflowError("storage_unavailable", "the disk is gone", status=503)

    async def talk(one: Conversation) -> None:
        await one.read_head()

    async with peer(talk) as made, client(made.url) as comfy:
        with pytest.raises(GenflowError, match="the disk is gone"):
            await comfy.upload(NAME, FOLDER, broken(), len(PNG), lambda: True)
        assert await made.conversations[0].reset is True


@pytest.mark.parametrize("size", [len(PNG) - 1, len(PNG) + 1])
async def test_a_file_of_another_size_than_said_is_not_completed(size: int) -> None:
    async def talk(one: Conversation) -> None:
        await one.read_head()

    async with peer(talk) as made, client(made.url) as comfy:
        with pytest.raises(ValueError, match=f"was said to have {size} bytes"):
            await comfy.upload(NAME, FOLDER, pieces(PNG), size, lambda: True)
        assert await made.conversations[0].reset is True
        assert len(made.conversations[0].received) < made.conversations[0].size


@pytest.mark.parametrize("name", ['a".png', "a\\b.png", "a\r\nb.png", "", "a/b.png"])
async def test_a_name_the_server_would_keep_differently_is_refused(name: str) -> None:
    async with double() as made:
        with pytest.raises(ValueError, match="for an upload must"):
            await made.client.upload(name, FOLDER, pieces(PNG), len(PNG), lambda: True)
        assert made.asked == []


@pytest.mark.parametrize(
    "said", [(413, b"too large"), (500, b"500"), (200, b"<html>"), (200, {}), (200, {"name": 3})], ids=str
)
async def test_an_upload_that_was_not_stored_is_told(said: object) -> None:
    async with double() as made:
        made.answers["POST /upload/image"] = said
        with pytest.raises(ServerAnswered):
            await made.client.upload(NAME, FOLDER, pieces(PNG), len(PNG), lambda: True)


OUTPUT = Output("3", "images", 0, "ok 1_00001_.png", "genflow/x/1", "output")


async def whole(made: Double, output: Output = OUTPUT) -> bytes:
    return b"".join([chunk async for chunk in made.client.view(output)])


async def test_an_output_is_streamed_by_name_folder_and_type() -> None:
    async def view(request: web.Request) -> web.Response:
        assert dict(request.query) == {"filename": "ok 1_00001_.png", "subfolder": "genflow/x/1", "type": "output"}
        assert request.headers["Accept-Encoding"] == "identity"
        return web.Response(body=PNG)

    async with double() as made:
        made.answers["GET /view"] = view
        assert await whole(made) == PNG


@pytest.mark.parametrize("said", [(404, b""), (200, b"")], ids=["404", "0 bytes"])
async def test_a_missing_or_empty_file_is_gone(said: object) -> None:
    async with double() as made:
        made.answers["GET /view"] = said
        with pytest.raises(OutputGone, match=r"ok 1_00001_\.png"):
            await whole(made)


@pytest.mark.parametrize("status", [206, 302, 400, 403, 500, 502])
async def test_any_other_answer_is_neither_a_file_nor_gone(status: int) -> None:
    async with double() as made:
        made.answers["GET /view"] = (status, b"<html>")
        with pytest.raises(ServerAnswered) as raised:
            await whole(made)
        assert raised.value.status == status


async def cut_off(one: Conversation) -> None:
    await one.read_head()
    await one.say("200 OK", PNG[:5_000], length=len(PNG))
    one.writer.close()


async def aborted(one: Conversation) -> None:
    await one.read_head()
    await one.say("200 OK", PNG[:5_000], length=len(PNG))
    one.abort()


@pytest.mark.parametrize("talk", [cut_off, aborted])
async def test_a_file_that_breaks_off_is_no_file(talk: Callable[[Conversation], Awaitable[None]]) -> None:
    async with peer(talk) as made, client(made.url) as comfy:
        with pytest.raises(ServerUnreachable):
            async for _ in comfy.view(OUTPUT):
                pass


async def test_a_file_whose_end_nobody_could_tell_is_not_taken() -> None:
    async def talk(one: Conversation) -> None:
        await one.read_head()
        one.writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + PNG[:5_000])
        one.writer.close()

    async with peer(talk) as made, client(made.url) as comfy:
        with pytest.raises(ServerAnswered, match="without its length"):
            async for _ in comfy.view(OUTPUT):
                pass


class Temp:
    """The temp folder of a server: uploads without overwrite, wiped when it starts."""

    def __init__(self, made: Double) -> None:
        self.files: dict[str, bytes] = {}
        self.uploads = 0
        made.answers["GET /view"] = self.view
        made.answers["POST /upload/image"] = self.upload

    async def view(self, request: web.Request) -> web.Response:
        assert request.query["type"] == "temp"
        found = self.files.get(request.query["filename"])
        return web.Response(status=404) if found is None else web.Response(body=found)

    async def upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        image = form["image"]
        assert isinstance(image, web.FileField)
        assert form["type"] == "temp"
        assert "overwrite" not in form
        self.uploads += 1
        name, n = image.filename, 0
        while name in self.files:
            n += 1
            name = f"genflow-boot ({n}).txt"
        self.files[name] = image.file.read()
        return web.json_response({"name": name, "subfolder": "", "type": "temp"})


async def test_a_boot_is_the_same_for_all_and_new_after_a_restart() -> None:
    async with double() as made:
        temp = Temp(made)
        first = await made.client.read_boot()
        assert isinstance(first, UUID)
        assert await made.client.read_boot() == first
        assert temp.uploads == 1, "a marker that stands is only read"
        temp.files.clear()
        assert await made.client.read_boot() != first


async def test_two_that_find_no_marker_at_once_believe_the_first_writer() -> None:
    async with double() as made:
        temp = Temp(made)
        both = asyncio.Barrier(2)
        looked = 0

        async def view(request: web.Request) -> web.Response:
            nonlocal looked
            looked += 1
            answer = await temp.view(request)
            if looked <= 2:
                await both.wait()
            return answer

        made.answers["GET /view"] = view
        boots = await asyncio.gather(made.client.read_boot(), made.client.read_boot())
        assert temp.uploads == 2
        assert boots[0] == boots[1] == UUID(temp.files["genflow-boot.txt"].decode())


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff\xfe", b"x" * 5_000])
async def test_a_marker_that_is_no_uuid_is_no_boot(content: bytes) -> None:
    async with double() as made:
        Temp(made).files["genflow-boot.txt"] = content
        with pytest.raises(ServerAnswered):
            await made.client.read_boot()


async def test_a_server_that_keeps_no_marker_has_no_boot() -> None:
    async with double() as made:
        made.answers["GET /view"] = (404, b"")
        made.answers["POST /upload/image"] = (200, {"name": "genflow-boot.txt", "subfolder": "", "type": "temp"})
        with pytest.raises(ServerAnswered):
            await made.client.read_boot()
        made.answers["POST /upload/image"] = (403, b"")
        with pytest.raises(ServerAnswered) as raised:
            await made.client.read_boot()
        assert raised.value.status == 403


async def test_a_new_boot_forgets_whether_the_jobs_route_exists() -> None:
    async with double() as made:
        temp = Temp(made)
        await made.client.read_boot()
        assert await made.client.has_jobs_route() is False
        made.knows_jobs_route()
        await made.client.read_boot()
        assert await made.client.has_jobs_route() is False
        temp.files["genflow-boot.txt"] = str(uuid4()).encode()
        await made.client.read_boot()
        assert await made.client.has_jobs_route() is True
