"""The whole of genflow on this machine, without a GPU: `make demo`.

Starts an API with a PostgreSQL of its own, two workers and two simulated ComfyUI servers, sends a photo and a prompt,
kills the worker that holds the job in the middle of the run, and shows that the other goes on with the same run. What
it shows it also checks: anything else than one run, one takeover and one picture is exit status 1.

`KEEP=1` leaves everything up. `--record FILE.svg` also draws the demo's screen into a picture.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import html
import io
import json
import os
import re
import shutil
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from genflow.cli.bars import Bars, drawing
from genflow.cli.client import Client, Refused, Unreachable, connect
from genflow.cli.exits import Misuse
from genflow.cli.following import Sight, follow
from genflow.cli.portrait import send_portrait
from genflow.cli.waiting import save

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out" / "demo"
DATA = OUT / "data"
PHOTO = ROOT / "examples" / "astronaut.jpg"
PROMPT = "studio portrait, soft window light, teal background"

LEASE_S = 6
STEPS = 32
SECONDS_PER_STEP = 0.4
SECONDS_PER_MEGAPIXEL = 2.0
KILL_AT_STEP = 13
START_S = 60.0
RUN_S = 60.0
STOP_S = 15.0


class Failed(Exception):
    """The demo did not show what it promises; the message says what was there instead."""


@dataclass
class Part:
    """One process of the demo, and what it said when it was ready."""

    name: str
    process: asyncio.subprocess.Process
    ready: dict[str, Any]


class Stage:
    """Prints the demo; a second console keeps what stays on the screen, for a picture of it."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty()
        self.console = Console(highlight=False, width=None if terminal else 100)
        self.record = Console(
            file=io.StringIO(), record=True, width=94, force_terminal=True, color_system="truecolor", highlight=False
        )
        self._began: float | None = None

    def say(self, line: RenderableType = "") -> None:
        """Print something that stays."""
        self.console.print(line, soft_wrap=isinstance(line, str))
        self.record.print(line)

    def begin(self) -> None:
        """From now on the clock counts."""
        self._began = time.monotonic()

    def at(self, line: str) -> None:
        """Print what has just happened, with the seconds that the clock counts."""
        when = "       " if self._began is None else f"{time.monotonic() - self._began:5.1f} s"
        self.say(f"[dim]{when}[/]  {line}")

    async def follow(
        self, sights: AsyncIterator[Sight], until: Callable[[Sight], bool], *, show_last: bool = True
    ) -> Sight:
        """Draw sights until one of them is the one, and answer it. The last that is drawn stays on the screen."""
        drawn: Sight | None = None
        with Bars(self.console, "portrait") as bars:
            async for sight in sights:
                found = until(sight)
                if show_last or not found:
                    bars.show(sight)
                    drawn = sight
                if found:
                    break
            else:
                raise Failed("the job ended before what the demo waits for")
        if drawn is not None:
            self.record.print(drawing("portrait", drawn, self.record.width))
        return sight


class Demo:
    """The processes of the demo, and its way through them."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.parts: list[Part] = []
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("GENFLOW_")}

    async def start(self, name: str, *words: str) -> Part:
        """Start one of genflow's commands and wait until it says that it is ready."""
        command = Path(sys.executable).parent / "genflow"
        log = OUT / f"{name}.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                str(command), *words, "--json",
                stdin=DEVNULL, stdout=PIPE, stderr=errors, cwd=OUT, env=self._environment,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops everything in order
            )  # fmt: skip
        part = Part(name, process, {})
        self.parts.append(part)
        assert process.stdout is not None  # noqa: S101 - asked for above
        try:
            line = await asyncio.wait_for(process.stdout.readline(), START_S)
            part.ready = json.loads(line)
        except (TimeoutError, ValueError):
            said = log.read_text(encoding="utf-8", errors="replace").strip()[-1500:]
            raise Failed(f"{name} did not start; {log} ends with:\n{said or '(nothing)'}") from None
        return part

    async def stop(self) -> None:
        """Stop every process, the owner of the database last; one that will not stop is killed."""
        await asyncio.gather(*(stop_process(part.process) for part in self.parts if part.name != "api"))
        await asyncio.gather(*(stop_process(part.process) for part in self.parts if part.name == "api"))
        if (pid := self.postgres_pid()) and is_alive(pid):
            raise Failed(f"PostgreSQL (pid {pid}) outlived the demo")

    def postgres_pid(self) -> int | None:
        """The process of the embedded PostgreSQL, as its owner's log tells."""
        log = OUT / "api.log"
        found = re.findall(r"embedded_postgres_ready.*\bpid=(\d+)", log.read_text()) if log.exists() else []
        return int(found[-1]) if found else None

    async def show(self) -> None:
        """The demo itself, from the first start to the last check."""
        stage = self.stage
        stage.say("[bold]genflow[/]: a face photo and a prompt in, a portrait out, [bold]one run[/] whatever crashes")
        stage.say()
        api, simulators = await together(
            self.start("api", "api", "--data", str(DATA), "--port", "0", "--lease", str(LEASE_S)),
            self.start(
                "simulators", "simulate", "--count", "2", "--port", "0", "--name", "sim", "--seed", "1",
                "--seconds-per-step", str(SECONDS_PER_STEP), "--seconds-per-megapixel", str(SECONDS_PER_MEGAPIXEL),
            ),
        )  # fmt: skip
        url, servers = api.ready["ready"], simulators.ready["ready"]
        stage.at(f"API on {url}, with a PostgreSQL of its own")
        stage.at("two simulated ComfyUI servers: " + ", ".join(servers))
        gpus = [word for name, address in servers.items() for word in ("--gpu", f"{name}={address}")]
        workers = await together(
            *(
                self.start(
                    f"worker-{letter}", "worker", "--data", str(DATA), *gpus, "--instance", "demo",
                    "--lease", str(LEASE_S), "--health-port", "0", "--grace-s", "2",
                )
                for letter in "AB"
            )
        )  # fmt: skip
        stage.at("two workers: " + ", ".join(f"{part.name[-1]} (pid {part.process.pid})" for part in workers))
        async with connect(url) as client, asyncio.timeout(RUN_S):
            await self._one_job(client, {part.ready["worker"]: part for part in workers}, servers)

    async def _one_job(self, client: Client, workers: dict[str, Part], servers: dict[str, str]) -> None:
        stage = self.stage
        fields = {"prompt": PROMPT, "steps": str(STEPS), "seed": "20260101"}
        stage.begin()
        job = await send_portrait(client, PHOTO.name, PHOTO.read_bytes(), fields, None)
        stage.at(f"sent {PHOTO.relative_to(ROOT)} and “{PROMPT}”")
        stage.say(f"         job {job['id']}, seed {job['seed']}")
        stage.say()
        async with aclosing(follow(client, job["id"])) as sights:
            half = await stage.follow(sights, lambda sight: (sight.step or 0) >= KILL_AT_STEP)
            holder = workers[half.story["worker"]]
            other = next(part for part in workers.values() if part is not holder)
            send(holder.process, signal.SIGKILL)
            await holder.process.wait()
            dead, server = half.story["worker"], half.story["server"].rpartition("/")[2]
            stage.say()
            stage.at(f"[bold red]kill -9[/] worker {holder.name[-1]}, which holds the job; {server} paints on, unheard")
            stage.say(
                f"         until the lease runs out ({LEASE_S} s after its last renewal), no other may touch the job"
            )
            stage.say()
            taken = await stage.follow(
                counting_down(sights, client, dead, holder.name[-1]),
                lambda sight: sight.story.get("worker") not in (dead, None) or sight.ended,
                show_last=False,
            )
            if taken.story["worker"] != other.ready["worker"]:
                raise Failed(f"worker {other.name[-1]} was not seen to take over; the job {taken.state}")
            stage.say()
            stage.at(f"[bold green]worker {other.name[-1]} took over[/] and re-attached to the same run on {server}")
            stage.say(f"         takeovers {taken.story['takeovers']}, submits {len(taken.story['submits'])}")
            stage.say()
            last = taken if taken.ended else await stage.follow(sights, lambda sight: sight.ended)
        await self._end(client, last, servers)

    async def _end(self, client: Client, last: Sight, servers: dict[str, str]) -> None:
        stage = self.stage
        job_id = last.job["id"]
        story = await client.get(f"/genflow/v1/jobs/{job_id}")
        write_json(OUT / "job.json", story)
        books = {}
        for name, address in servers.items():
            async with connect(address) as simulator:
                books[name] = await simulator.get("/simulator/books")
        write_json(OUT / "books.json", books)
        if last.job["status"] != "succeeded":
            raise Failed(f"the job {last.state}; see {OUT / 'job.json'}")
        picture = OUT / "portrait.png"
        await save(client, last.job["outputs"], picture)
        check_story(story)
        check_books(books, job_id)
        size = check_picture(picture)
        stage.say()
        stage.at(f"the portrait arrived: {picture.relative_to(ROOT)}, {size[0]} × {size[1]}")
        stage.say()
        stage.say(books_table(books, job_id))
        stage.say()
        stage.say("[bold green]this prompt ran once[/]")


def send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal a process. Not by its own methods: those reap one that has just died, behind asyncio's back."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


async def stop_process(process: asyncio.subprocess.Process) -> None:
    """Ask a process to end, and end it where it doesn't within `STOP_S` seconds."""
    if process.returncode is not None:
        return
    send(process, signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        send(process, signal.SIGKILL)
        await process.wait()


async def together(*starts: Coroutine[Any, Any, Part]) -> list[Part]:
    """Start several processes at a time. Where one fails, none is half started."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(start) for start in starts]
    except ExceptionGroup as faults:
        raise faults.exceptions[0] from None
    return [task.result() for task in tasks]


async def counting_down(sights: AsyncIterator[Sight], client: Client, dead: str, letter: str) -> AsyncIterator[Sight]:
    """The sights while the dead worker's lease runs out, saying so."""
    async for sight in sights:
        until = sight.story.get("lease_until")
        if sight.story.get("worker") == dead and until and not sight.ended:
            left_s = datetime.fromisoformat(until).timestamp() - client.server_time()
            told = f"runs out in {left_s:.0f} s" if left_s >= 0.5 else "has run out"
            sight = replace(sight, state=f"waiting: dead worker {letter}'s lease {told}")
        yield sight


def check_story(story: dict[str, Any]) -> None:
    """The service's own account: one takeover, and one submit for all of it. Else Failed."""
    found = {
        "status": story["status"],
        "takeovers": story["takeovers"],
        "resubmits": story["resubmits"],
        "attempts": story["attempts_spent"],
        "submits": len(story["submits"]),
    }
    wanted = {"status": "succeeded", "takeovers": 1, "resubmits": 0, "attempts": 1, "submits": 1}
    if found != wanted:
        raise Failed(f"the job's story must be {wanted}, and is {found}; see {OUT / 'job.json'}")


def check_books(books: dict[str, Any], job_id: str) -> None:
    """The servers' account: posted once and run once, on all of them together. Else Failed."""
    pages = [answer["prompts"].get(job_id, {"posts": 0, "executions": 0}) for answer in books.values()]
    posts, runs = sum(page["posts"] for page in pages), sum(page["executions"] for page in pages)
    if (posts, runs) != (1, 1):
        raise Failed(f"the prompt must be posted once and run once; posted {posts}, run {runs}: {OUT / 'books.json'}")


def check_picture(picture: Path) -> tuple[int, int]:
    """The picture is whole; its width and height. Else Failed."""
    try:
        with Image.open(picture) as image:
            image.load()
            return image.size
    except (OSError, SyntaxError) as error:
        raise Failed(f"{picture} is no whole picture: {error}") from None


def books_table(books: dict[str, Any], job_id: str) -> Table:
    """What each simulator counted for the prompt."""
    table = Table(title="the simulators' books", title_justify="left", box=None, padding=(0, 2), title_style="bold")
    for column in ("server", "prompt", "posted", "run", "pictures"):
        table.add_column(column, style=None if column == "server" else "", header_style="dim")
    for name, answer in books.items():
        page = answer["prompts"].get(job_id)
        if page is None:
            table.add_row(name, Text("never heard of it", style="dim"), "0", "0", "0")
        else:
            table.add_row(name, job_id, str(page["posts"]), str(page["executions"]), str(len(page["files"])))
    return table


def write_json(path: Path, value: Any) -> None:
    """Write a file of the demo's results."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def is_alive(pid: int) -> bool:
    """Whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def clear() -> None:
    """A fresh folder for the demo. Failed while an earlier one is still up, or where it can't be removed."""
    lock = DATA / "postgres" / "owner.lock"
    try:
        if lock.exists():
            with lock.open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_data()
        shutil.rmtree(OUT, ignore_errors=False) if OUT.exists() else None
        OUT.mkdir(parents=True)
    except BlockingIOError:
        pids = (OUT / "pids").read_text().strip() if (OUT / "pids").exists() else "its processes"
        raise Failed(f"an earlier demo is still up; stop it with: kill {pids}") from None
    except OSError as error:
        raise Failed(f"{OUT} can't be made anew ({error}); remove it, perhaps as root, and try again") from None


def remove_data() -> None:
    """Remove the demo's database and pictures, also a cluster that lies outside the folder (see place.json)."""
    place = DATA / "postgres" / "place.json"
    if place.exists():
        recorded = json.loads(place.read_text())
        for key in ("cluster", "sockets"):
            if recorded.get(key):
                shutil.rmtree(Path(recorded[key]).parent, ignore_errors=True)
    if DATA.exists():
        shutil.rmtree(DATA)


def say_kept(demo: Demo) -> None:
    """How to use and to stop what KEEP=1 leaves up."""
    living = {part.name: part for part in demo.parts if part.process.returncode is None}
    pids = " ".join(str(part.process.pid) for part in living.values())
    (OUT / "pids").write_text(pids + "\n")
    url = living["api"].ready["ready"]
    genflow = os.path.relpath(Path(sys.executable).parent / "genflow")
    demo.stage.say()
    demo.stage.say("left running (KEEP=1):")
    for part in living.values():
        told = part.ready["ready"]
        where = ", ".join(f"{name} {address}" for name, address in told.items()) if isinstance(told, dict) else told
        demo.stage.say(f"  {part.name:<11}{where}")
    demo.stage.say(f"  look:      GENFLOW_URL={url} {genflow} jobs list")
    demo.stage.say(f"  stop:      kill {pids}")


def draw_record(stage: Stage, path: Path) -> None:
    """The demo's screen as an SVG that needs nothing from the network: no web fonts, no links."""
    svg = stage.record.export_svg(title="make demo", unique_id="genflow-demo", clear=False)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r'x="([\d.]+)"([^>]*) textLength="([\d.]+)"([^>]*)>((?:&#160;)*)(.*?)((?:&#160;)*)</text>', _trimmed, svg
    )
    svg = svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg, encoding="utf-8")


def _trimmed(text: re.Match[str]) -> str:
    """A piece of text without the blanks around it, which not every program that shows SVG keeps."""
    x, before, length, after, left, words, right = text.groups()
    blank = len("&#160;")
    glyphs = len(html.unescape(left + words + right))
    width = float(length) / glyphs
    starts = float(x) + width * len(left) / blank
    spans = width * len(html.unescape(words))
    return f'x="{starts:.1f}"{before} textLength="{spans:.1f}"{after}>{words}</text>' if words else text[0]


async def play(demo: Demo, *, keep: bool) -> None:
    """Show the demo, and stop whatever it started: at its end, on failure, and when it is told to end."""
    me = asyncio.current_task()
    loop = asyncio.get_running_loop()
    asked = False

    def end_early() -> None:
        nonlocal asked
        if not asked and me is not None:
            me.cancel()
        asked = True  # a second signal must not cut the stopping short

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end_early)
    shown = False
    try:
        await demo.show()
        shown = True
    except TimeoutError:
        raise Failed(f"the job took longer than {RUN_S:g} s; the logs are in {OUT}") from None
    except (Unreachable, Refused, Misuse) as fault:
        raise Failed(str(fault)) from fault
    finally:
        if keep and shown:
            say_kept(demo)
        else:
            asked = True
            await demo.stop()


def main() -> int:
    """Run the demo; its exit status."""
    parser = argparse.ArgumentParser(description="genflow without a GPU, and a worker killed in mid-run")
    parser.add_argument("--record", type=Path, metavar="FILE.svg", help="draw the demo's screen into a picture")
    record: Path | None = parser.parse_args().record
    keep = os.environ.get("KEEP", "") not in ("", "0")
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    stage = Stage()
    try:
        clear()
        asyncio.run(play(Demo(stage), keep=keep))
        if record is not None:
            draw_record(stage, record)
        if not keep:
            stage.say("everything that was started is stopped")
            remove_data()
    except Failed as fault:
        print(f"demo: {fault}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        print("demo: ended early; everything that was started is stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
