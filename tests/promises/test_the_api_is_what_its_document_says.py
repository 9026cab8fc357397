"""Everything that the API answers stands in its own OpenAPI document, whatever is sent to it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from tests.support.service import Service, small_workflow

SEED, EXAMPLES = 20261201, 12
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


async def test_whatever_is_sent_the_answer_is_documented(genflow: Service, tmp_path: Path) -> None:
    await genflow.simulate()
    await genflow.api()
    await genflow.worker()
    done = await genflow.submit()
    output = (await genflow.succeeded(done))["outputs"][0]["id"]
    missing_file = {"class_type": "LoadImage", "inputs": {"image": "nobody_has_this.png"}}  # as only the server knows
    dead = await genflow.submit(small_workflow() | {"1": missing_file})
    await genflow.ended(dead)
    line = json.dumps({"workflow": small_workflow(color=1)})
    _, batch = await genflow.request("POST", "/genflow/v1/batches", data=line)
    known = {"job_id": done, "asset_id": output, "given_id": dead, "batch_id": batch["id"], "name": "test/sim0"}
    config = tmp_path / "schemathesis.toml"
    config.write_text("[parameters]\n" + "".join(f'"path.{name}" = "{value}"\n' for name, value in known.items()))
    command: list[str | Path] = [
        Path(sys.executable).parent / "schemathesis", "--config-file", config, "run", f"{genflow.url}/openapi.json",
        "--checks", CHECKS, "--seed", str(SEED), "--max-examples", str(EXAMPLES),
        "--phases", "coverage,fuzzing", "--no-color", "--warnings", "off",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()[-8_000:]
