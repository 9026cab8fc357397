"""The mutants: which rule each breaks, and how. Pure data; `apply.py` makes the source of one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace `old` by `new` in the files that `path` matches (a glob below the package); it must stand there.

    `times` is how often it must stand in all of them together; None = at least once in each file that has it.
    """

    path: str
    old: str
    new: str
    times: int | None = 1


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken rule."""

    name: str
    breaks: str
    """The promise, and how."""
    edits: tuple[Edit, ...]


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "no_fence",
        "no write without the token: a worker that was frozen past its lease goes on writing for the next holder",
        (
            Edit("queue/sql/*.sql", " and token = %(token)s and worker_id = %(worker)s", "", times=None),
            Edit("queue/hold.py", "return not self.lost and boottime() + seconds <= self.deadline", "return True"),
        ),
    ),
    Mutant(
        "no_ask_before_the_post",
        "one run per job: what an earlier holder has posted is not asked for",
        (
            Edit(
                "worker/submitting.py",
                "finding = await self._job.asker.clear(submit.uuid)",
                "finding = Finding(Answer(Known.UNKNOWN))",
            ),
            Edit("worker/submitting.py", "await self._found(submit, settled_at)", "Doubt.REFUSED"),
            Edit("worker/submitting.py", "import Doubt, room", "import Answer, Doubt, Finding, room"),
        ),
    ),
    Mutant(
        "doubt_is_refusal",
        "one run per job: a POST without an answer is taken for refused",
        (Edit("worker/submitting.py", "await self._found(submit, boottime() + settle_s)", "Doubt.REFUSED"),),
    ),
    Mutant(
        "resubmit_uncounted",
        "each further run is counted on its job",
        (
            Edit(
                "queue/sql/close_submit.sql",
                "(select count(*) from closed where %(resubmit)s)",
                "0 * %(resubmit)s::int",
            ),
        ),
    ),
    Mutant(
        "finished_run_again",
        "a finished step is not repeated: after a crash a run that ended well is submitted again",
        (
            Edit(
                "worker/attempt.py",
                "if self._job.work.step is Step.WAIT and self._job.work.submit is not None:",
                "if self._job.work.step is Step.WAIT and self._job.work.submit is None:",
            ),
        ),
    ),
    Mutant(
        "scrub_before_commit",
        "a finished step is not repeated: files are taken off the server before the job's result is committed",
        (
            Edit(
                "worker/collecting.py",
                '                failpoints.hit("download.before_commit")\n',
                "                with suppress(ComfyError):\n"
                "                    await self._job.server.comfy.history_delete(self._job.id)\n"
                '                failpoints.hit("download.before_commit")\n',
            ),
        ),
    ),
    Mutant(
        "ack_before_record",
        "nothing accepted is lost: a message is acknowledged before its job is in Postgres",
        (
            Edit(
                "intake/rabbit.py",
                "        outcome = await self._desk.bring_in(batch)\n",
                "        for message in batch:\n"
                "            await session.ack(_tag(message))\n"
                '        failpoints.hit("rabbit.before_ack")\n'
                "        outcome = await self._desk.bring_in(batch)\n",
            ),
            Edit(
                "intake/rabbit.py",
                "        if len(done) == len(batch) and not self._held:\n",
                "        self._held.clear()\n"
                "        done = []\n"
                "        if len(done) == len(batch) and not self._held:\n",
            ),
        ),
    ),
    Mutant(
        "cancel_forgotten",
        "canceled means canceled: the wish is written down, and neither the holder nor the result heeds it",
        (
            Edit("worker/run.py", "        self.cancel_asked = True\n", ""),
            Edit("queue/sql/finish.sql", "held.cancel_at is null", "true", times=None),
            Edit("worker/*.py", "self._job.run.cancel_asked |= ", "", times=None),
            Edit("worker/held.py", "self.run.cancel_asked |= self.work.cancel_asked", "pass"),
        ),
    ),
    Mutant(
        "half_a_file_is_a_file",
        "no false success: a download that breaks off is taken for the whole picture",
        (
            Edit(
                "comfy/client.py",
                'raise ServerUnreachable(f"/view: {error or type(error).__name__}") from error',
                "pass",
            ),
        ),
    ),
    Mutant(
        "everybodys_jobs",
        "nobody sees another's job: the tenant is not asked for",
        (
            Edit(
                "queue/sql/job_view.sql",
                "(%(tenant)s::int is null or j.tenant_id = %(tenant)s)",
                "true or %(tenant)s::int is null",
            ),
        ),
    ),
    Mutant(
        "key_is_ignored",
        "nothing is accepted twice: a submit that is sent again makes another job",
        (Edit("queue/queue.py", '"key": job.idempotency_key,', '"key": None,'),),
    ),
)
"""Every mutant, by the promise that it breaks."""
