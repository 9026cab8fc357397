"""`genflow run` prints, to the letter, what a worker in production is expected to say of each job.

The transcripts in `data/` are those of the course “ComfyUI in production” (lesson 12), with genflow's own way through a
back-off; `<n>` is a file's counter, `<hash>` the first 16 hex digits of its SHA-256.
"""

from __future__ import annotations

import re
from pathlib import Path

from genflow.intake.jobs_file import read_jobs_file
from tests.support.cli import Ended, Terminal
from tests.support.service import Service

HERE = Path(__file__).parent / "data"
EXAMPLES = Path(__file__).parents[2] / "examples" / "chords"
KINDS = ("csv", "jsonl")
QUICK = ("--no-jitter", "--poll-ms=200", "--depth=1")


def transcript(name: str) -> list[str]:
    return (HERE / f"{name}.txt").read_text().splitlines()


def normal(printed: Ended) -> list[str]:
    assert "Traceback" not in printed.err, printed.err
    return re.sub(r"_\d{5}_\.png [0-9a-f]{16}", "_<n>_.png <hash>", printed.out).splitlines()


async def run(genflow: Service, file: Path, store: str, *words: str) -> Ended:
    gpus = [f"--gpu=gpu{number}={server.url}" for number, server in enumerate(genflow.simulators)]
    terminal = Terminal(genflow.folder, "http://127.0.0.1:9")
    return await terminal.run("run", str(file), *gpus, "--store", store, "--name=worker-1", *words)


async def test_every_failure_is_told_in_order(genflow: Service) -> None:
    await genflow.simulate(script="500,ok,drop,invalid,oom,ok,error,hang,hang")
    ended = await run(
        genflow, HERE / "jobs/failures.jsonl", "first", *QUICK, "--base-delay-ms=0", "--attempts=2", "--timeout-s=1"
    )
    assert normal(ended) == transcript("failures")
    assert ended.status == 3


async def test_a_second_store_takes_what_its_server_has_done_already(genflow: Service) -> None:
    await genflow.simulate()
    words = (*QUICK, "--attempts=2", "--timeout-s=120", "--no-scrub")
    first = await run(genflow, HERE / "jobs/real.jsonl", "first", *words)
    assert (normal(first), first.status) == (transcript("real"), 3)
    pictures = genflow.folder / "first" / "jobs" / "00000021-0000-4000-8000-000000000000"
    assert genflow.files(str(pictures)) == ["3-solid_00001_.png", "4-inverted_00001_.png"], "a person finds them"
    second = normal(await run(genflow, HERE / "jobs/real.jsonl", "second", *words))
    assert [line for line in second if line in transcript("second")] == transcript("second")
    once_more = normal(await run(genflow, HERE / "jobs/real.jsonl", "first", *words))
    done = "job 000000{}: already done, acknowledged without running"
    assert once_more[1:4] == [done.format(21), done.format(21), done.format(23)]
    assert once_more[4:] == transcript("real")[-3:], "a dead letter stays one, and nothing runs again"


async def test_twenty_images_survive_one_out_of_memory(genflow: Service) -> None:
    await genflow.simulate(script="ok,ok,oom")
    ended = await run(genflow, EXAMPLES / "chords.csv", "first", *QUICK, "--base-delay-ms=0")
    assert (normal(ended)[-1:], ended.status) == (transcript("ga-summary"), 0)
    [server] = genflow.simulators
    assert await server.get("/history") == {}, "it is clean when the run ends"
    csv, jsonl = ([(job.id, job.workflow) for job in read_jobs_file(EXAMPLES / f"chords.{kind}")] for kind in KINDS)
    assert csv == jsonl


async def test_the_shortest_queue_is_chosen(genflow: Service) -> None:
    await genflow.simulate(busy=2)
    await genflow.simulate()
    printed = normal(await run(genflow, HERE / "jobs/four.jsonl", "first", *QUICK))
    scheduler, summary = transcript("two-servers-summary")
    assert next(line for line in printed if line.startswith("scheduler:")) == scheduler
    assert printed[-1] == summary
