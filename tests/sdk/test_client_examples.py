"""The clients that the documentation shows do what it says: Node's fetch, PHP's curl, a web page."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from PIL import Image
from playwright.async_api import async_playwright, expect

from tests.sdk.clients import CLIENTS, node, said_by, system_program
from tests.support.repository import ROOT
from tests.support.service import Service, service

PHOTO = ROOT / "examples" / "astronaut.jpg"
INVERT = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "example.png"}},
    "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
    "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "inverted"}},
}


async def test_nodes_fetch_and_phps_curl(genflow: Service, tmp_path: Path) -> None:
    env = {"GENFLOW_URL": genflow.url}
    Image.new("RGB", (64, 64), "red").save(tmp_path / "red.png")
    (tmp_path / "invert.json").write_text(json.dumps(INVERT))
    result = tmp_path / "node.png"
    program = CLIENTS / "node_fetch.mjs"
    said = await said_by(node(), program, tmp_path / "red.png", tmp_path / "invert.json", result, env=env)
    assert said.split()[1:] == ["succeeded", str(result)]
    assert Image.open(io.BytesIO(result.read_bytes())).convert("RGB").getpixel((0, 0)) == (0, 255, 255)

    result = tmp_path / "php.png"
    said = await said_by(system_program("php"), CLIENTS / "portrait.php", PHOTO, "a studio portrait", result, env=env)
    assert said.split()[1:] == ["succeeded", str(result)]
    assert Image.open(io.BytesIO(result.read_bytes())).format == "PNG"


@asynccontextmanager
async def site() -> AsyncIterator[str]:
    """The origin of the example's page: another site than genflow's."""
    app = web.Application()
    app.router.add_static("/", CLIENTS)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_web_page_of_an_allowed_origin(database: str, tmp_path: Path) -> None:
    async with service(database, tmp_path) as genflow, site() as origin, async_playwright() as play:
        await genflow.simulate_together(1)
        await genflow.api(cors_origins=origin)
        await genflow.worker()
        browser = await play.chromium.launch(executable_path=system_program("chromium"), args=["--no-sandbox"])
        page = await browser.new_page()
        await page.goto(f"{origin}/browser.html?api={genflow.url}")
        await page.set_input_files("[name=photo]", PHOTO)
        await page.fill("[name=prompt]", "a studio portrait")
        await page.click("button")
        await expect(page.locator("#state")).to_have_text("succeeded", timeout=30_000)
        shown = page.locator("#picture")
        await expect(shown).to_have_js_property("complete", True)
        assert await shown.evaluate("picture => picture.naturalWidth") > 0
        assert await page.locator("#bar").evaluate("bar => bar.value") == 1
        await browser.close()
