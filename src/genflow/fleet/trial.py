"""A trial: a tiny prompt without any model, which a server that is distrusted has to run before it gets work again.

EmptyImage → ImageBlur → PreviewImage, of ComfyUI's own nodes. ImageBlur moves the picture to the GPU and convolves it
there (`comfy_extras/nodes_post_processing.py`), so a success proves that the worker thread lives and that the CUDA
context can be used. It proves nothing about models or memory.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import uuid4

from genflow.comfy import ComfyError, ComfyServer
from genflow.protocol import Known, Reply, boottime, prompt_body

POST_S = 10.0
ASK_EVERY_S = 0.5


class TrialFailed(Exception):
    """The server did not run the trial to a success in time; the text says what it did instead."""


def trial_graph(colour: int) -> dict[str, Any]:
    """The prompt; another colour each time, so that no cache can answer it."""
    return {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": colour}},
        "2": {"class_type": "ImageBlur", "inputs": {"image": ["1", 0], "blur_radius": 1, "sigma": 1.0}},
        "3": {"class_type": "PreviewImage", "inputs": {"images": ["2", 0]}},
    }


async def run_trial(comfy: ComfyServer, *, within_s: float) -> None:
    """Have the server run the trial, and clean up. Raises TrialFailed, at the latest after `within_s` seconds."""
    prompt, submit = uuid4(), uuid4()
    body = prompt_body(
        trial_graph(random.randrange(1, 2**24)),  # noqa: S311 - only another one than last time
        job_id=prompt,
        submit=submit,
        token=0,
        client_id=str(submit),
        submit_no=0,
        extra_data=None,
    )
    give_up_at = boottime() + within_s
    try:
        reply = await comfy.post(body, job_id=prompt, timeout_s=min(POST_S, within_s), gate=lambda: True)
        if reply.kind in (Reply.REFUSED, Reply.REFUSED_IN_FRONT, Reply.HALF_VALID):
            raise TrialFailed(f"it refused the trial: {reply.message}")
        while boottime() < give_up_at:
            answer = await comfy.ask(prompt, submit, doubt=False)
            if answer.known is Known.ENDED and answer.entry is not None:
                await comfy.history_delete(prompt)
                if answer.entry.outcome == "success":
                    return
                said = "" if answer.entry.error is None else f": {answer.entry.error.message.strip()}"
                raise TrialFailed(f"the trial ended as {answer.entry.outcome}{said}")
            await asyncio.sleep(ASK_EVERY_S)
        await comfy.cancel(prompt)
    except ComfyError as error:
        raise TrialFailed(str(error) or type(error).__name__) from error
    raise TrialFailed(f"it did not run a tiny prompt within {within_s:g} s")
