"""A Celery worker as people build one for ComfyUI: submit and poll in one task. An honest one, set up with care.

- RabbitMQ, a durable queue, persistent messages, publisher confirms: nothing that was accepted is lost with the broker.
- `acks_late` and `reject_on_worker_lost`: a task whose worker dies is delivered again. Without them its job were lost.
- `prefetch_multiplier` 1 and two processes for each server, so that a prompt always lies in the server's queue when the
  one before it ends. One worker for each server, all on one queue.
- A task polls the history ten times a second (once a second is usual), over one kept connection.
- A picture is written beside its name, synced, then renamed. A task that finds its job done runs nothing.
- What may pass is retried with back-off and jitter: connection errors, 5xx, and a prompt that its server has forgotten.

What it has not is a place to write down that the prompt was sent: the next attempt starts with a fresh submit.

`BROKER_URL`, `COMFY_URL` and `STORE` come from the environment.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import requests
from celery import Celery

QUEUE = "portraits"
TASK = "portrait"
POLL_S = 0.1
LOOK_EVERY = 10
"""Polls of the history for one look whether the server still knows the prompt."""
CALL_S = 10.0
RUN_S = 600.0
DONE = "done"


class Gone(Exception):
    """The server has forgotten the prompt, or did not run it in time."""


def settings(app: Celery) -> Celery:
    """The app with the settings that the worker and its clients share."""
    app.conf.update(
        task_default_queue=QUEUE,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_cancel_long_running_tasks_on_connection_loss=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={"confirm_publish": True, "max_retries": 3, "interval_max": 0.5},
    )
    return app


app = settings(Celery("portraits", broker=os.environ.get("BROKER_URL", "amqp://")))
_http = requests.Session()


@app.task(
    name=TASK,
    autoretry_for=(requests.RequestException, Gone),
    retry_backoff=1,
    retry_backoff_max=10,
    retry_jitter=True,
    max_retries=30,
)
def portrait(job_id: str, workflow: dict[str, Any]) -> None:
    """Make one job's pictures. Everything happens in here, from the submit to the stored files."""
    folder = Path(os.environ["STORE"]) / job_id
    if (folder / DONE).exists():
        return
    url = os.environ["COMFY_URL"]
    posted = _http.post(f"{url}/prompt", json={"prompt": workflow, "client_id": uuid4().hex}, timeout=CALL_S)
    posted.raise_for_status()
    prompt_id = posted.json()["prompt_id"]
    entry = _wait(url, prompt_id)
    if entry["status"]["status_str"] != "success":
        raise RuntimeError(f"{prompt_id} failed: {entry['status']['messages'][-1]}")
    folder.mkdir(parents=True, exist_ok=True)
    for output in entry["outputs"].values():
        for image in output.get("images", []):
            picture = _http.get(f"{url}/view", params=image, timeout=CALL_S)
            picture.raise_for_status()
            _store(folder / image["filename"], picture.content)
    _store(folder / DONE, b"")


def _wait(url: str, prompt_id: str) -> dict[str, Any]:
    """The prompt's history entry, once there is one."""
    end = time.monotonic() + RUN_S
    polls = 0
    while time.monotonic() < end:
        polls += 1
        history = _get(f"{url}/history/{prompt_id}")
        if prompt_id in history:
            entry: dict[str, Any] = history[prompt_id]
            return entry
        if polls % LOOK_EVERY == 0 and not _knows(url, prompt_id):
            break
        time.sleep(POLL_S)
    raise Gone(prompt_id)


def _knows(url: str, prompt_id: str) -> bool:
    queue = _get(f"{url}/queue")
    waits = any(item[1] == prompt_id for item in (*queue["queue_running"], *queue["queue_pending"]))
    return waits or prompt_id in _get(f"{url}/history/{prompt_id}")  # it may have ended between the two looks


def _get(url: str) -> Any:
    answer = _http.get(url, timeout=CALL_S)
    answer.raise_for_status()
    return answer.json()


def _store(path: Path, data: bytes) -> None:
    written = path.with_name(f"{path.name}.{uuid4().hex}")
    with written.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    written.rename(path)
