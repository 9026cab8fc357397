"""Every setting of genflow, with its meaning and unit: TOML file < environment < command-line flag.

The file is `genflow.toml` in the working folder, or what `GENFLOW_CONFIG` names. The environment's twin of
`queue_limit` is `GENFLOW_QUEUE_LIMIT`; of `portrait.checkpoint`, `GENFLOW_PORTRAIT__CHECKPOINT`.
docs/reference/settings.md is made from the descriptions here.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from genflow.failures import Policy
from genflow.protocol import Timing


def _parse_servers(value: Any) -> Any:
    """Accept `gpu0=http://host:8188,gpu1=…`, a list of such pairs, or a table."""
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        return value
    servers: dict[str, str] = {}
    for pair in value:
        name, separator, url = str(pair).strip().partition("=")
        if not separator or not name or not url.startswith(("http://", "https://")):
            raise ValueError(f"a server is given as NAME=URL, for example gpu0=http://127.0.0.1:8188, not {pair!r}")
        url = url.rstrip("/")
        if name in servers:
            raise ValueError(f"the server name {name!r} is given twice: {servers[name]} and {url}")
        if url in servers.values():
            other = next(known for known, address in servers.items() if address == url)
            raise ValueError(f"one server under two names: {other!r} and {name!r} are both {url}")
        servers[name] = url
    return servers


class PortraitSettings(BaseModel):
    """Which model files the FaceID portrait uses; the names are those in the servers' model folders."""

    checkpoint: str = Field("dreamshaper_8.safetensors", description="Checkpoint file (SD 1.5).")
    ipadapter: str = Field("ip-adapter-faceid-plusv2_sd15.bin", description="IPAdapter FaceID Plus v2 file.")
    clip_vision: str = Field("CLIP-ViT-H-14-laion2B-s32B-b79K.safetensors", description="CLIP vision file.")
    faceid_lora: str = Field(
        "ip-adapter-faceid-plusv2_sd15_lora.safetensors", description="The LoRA that belongs to the FaceID model."
    )
    faceid_lora_strength: float = Field(0.6, description="Strength of the FaceID LoRA.")
    provider: Literal["CPU", "CUDA", "ROCM"] = Field("CUDA", description="Where InsightFace runs on the server.")
    loras: dict[str, str] = Field(
        default_factory=dict, description="Style LoRAs that a request may name: name = file. Others are refused."
    )


class Settings(BaseSettings):
    """The whole configuration of one genflow process."""

    model_config = SettingsConfigDict(
        env_prefix="GENFLOW_", env_nested_delimiter="__", extra="forbid", validate_default=True
    )

    # Where things are kept
    database_url: str | None = Field(
        None, description="PostgreSQL (15 or newer) to use; none = the embedded server under `data`."
    )
    data: Path = Field(Path("genflow-data"), description="One folder for everything: embedded Postgres and pictures.")

    # The API
    host: str = Field("127.0.0.1", description="Address that the API listens on.")
    port: int = Field(8190, ge=0, le=65_535, description="Port of the API; 0 = a free one.")
    insecure: bool = Field(False, description="Allow an address other than loopback without keys.")
    public_url: str | None = Field(None, description="The API's address as clients see it, for links in answers.")
    queue_limit: int = Field(10_000, ge=1, description="Live jobs the queue accepts; past it 429 `queue_full`.")
    retention_s: float = Field(
        30 * 86_400.0, gt=0, description="Seconds that a finished job and its pictures are kept."
    )
    max_workflow_bytes: int = Field(4 * 1024 * 1024, ge=1_024, description="Largest workflow accepted, in bytes.")
    max_photo_bytes: int = Field(20 * 1024 * 1024, ge=1_024, description="Largest photo accepted, in bytes.")
    max_photo_pixels: int = Field(50_000_000, ge=65_536, description="Most pixels a photo may have once decoded.")
    min_photo_side: int = Field(128, ge=1, description="Shortest side of a photo, in pixels.")

    # The worker and its servers
    gpu: Annotated[dict[str, str], NoDecode, BeforeValidator(_parse_servers)] = Field(
        default_factory=dict, description="ComfyUI servers: NAME=URL, several separated by commas."
    )
    instance: str = Field(
        default_factory=socket.gethostname,
        description="Name of this machine; servers on loopback addresses are known to the fleet as INSTANCE/NAME.",
    )
    slots: int = Field(2, ge=1, le=64, description="Prompts that one server holds at a time: one runs, the rest wait.")
    max_in_flight: int | None = Field(
        None, ge=1, description="Jobs that one worker process holds at a time; none = the slots of its servers."
    )
    health_host: str = Field("127.0.0.1", description="Address of the worker's health page.")
    health_port: int = Field(8191, ge=0, le=65_535, description="Port of the worker's health page; 0 = a free one.")
    probe_s: float = Field(3.0, gt=0, description="Seconds between two probes of a server, and a probe's time limit.")
    quarantine_s: float = Field(60.0, gt=0, description="Seconds that a quarantined server gets no new work.")
    poll_ms: int = Field(5_000, ge=20, description="Longest time between two polls of a running prompt, milliseconds.")
    claim_poll_s: float = Field(1.0, gt=0, description="Longest time between two looks into the queue, seconds.")
    grace_s: float = Field(25.0, ge=0, description="Seconds that running jobs get at shutdown.")
    on_grace: Literal["leave", "interrupt"] = Field(
        "leave", description="After the grace: `leave` hands the run over, `interrupt` stops it at the server."
    )

    # The run-once protocol (docs/design/protocol.md, section 4)
    lease: float = Field(
        30.0, gt=0, description="Seconds a worker owns a job without renewing; the next four follow it."
    )
    heartbeat: float | None = Field(None, gt=0, description="Seconds between two renewals; none = lease / 3.")
    margin: float | None = Field(
        None, gt=0, description="Seconds before its lease's end that a worker stops; lease / 6."
    )
    post_timeout: float | None = Field(None, gt=0, description="Total seconds of one POST of a prompt; lease / 3.")
    settle: float | None = Field(None, gt=0, description="Seconds until an unknown prompt is believed unknown; lease.")
    stop_grace_s: float = Field(60.0, gt=0, description="Seconds a stopped prompt has to go before it is abandoned.")
    collect_window_s: float = Field(86_400.0, gt=0, description="Seconds that downloading a finished run is retried.")

    # Retries
    attempts: int = Field(4, ge=1, le=100, description="Attempts of one job.")
    base_delay_ms: int = Field(2_000, ge=0, description="First back-off, milliseconds; doubles with every attempt.")
    max_delay_ms: int = Field(60_000, ge=0, description="Longest back-off, milliseconds.")
    jitter: bool = Field(True, description="Spread the back-off at random between 0 and its bound.")
    timeout_s: float = Field(600.0, gt=0, description="Run timeout: seconds from the first sight of running.")
    silence_s: float = Field(300.0, gt=0, description="Seconds without an event of a running prompt.")
    oom: Literal["retry", "fail"] = Field("retry", description="After out of memory: one more attempt, or none.")
    max_takeovers: int = Field(5, ge=0, description="Leases that may run out on one job before it is a dead letter.")
    max_resubmits: int = Field(3, ge=0, description="Times a prompt that its server forgot is queued again.")
    server_lost_after_s: float | None = Field(
        None, gt=0, description="Seconds unseen after which a server's open submits are given up; none = never."
    )

    # Portraits
    portrait: PortraitSettings = Field(default_factory=PortraitSettings, description="Model files of the portrait.")

    # Telling what happens
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    log_json: bool = Field(False, description="Log as JSON lines instead of text.")
    failpoints: str = Field(
        "", description="For tests: NAME=kill|freeze|error[@N], several separated by commas (see failpoints.md)."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags win over the environment, the environment over the file."""
        path = os.environ.get("GENFLOW_CONFIG", "genflow.toml")
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=path)

    @model_validator(mode="after")
    def _timing_holds(self) -> Settings:
        self.timing()
        return self

    def timing(self) -> Timing:
        """The lease and what follows it; ValueError names the numbers that don't fit."""
        return Timing.from_lease(
            self.lease,
            heartbeat_s=self.heartbeat,
            margin_s=self.margin,
            post_timeout_s=self.post_timeout,
            settle_s=self.settle,
        )

    def policy(self) -> Policy:
        """The retry policy that a new job gets."""
        return Policy(
            max_attempts=self.attempts,
            base_s=self.base_delay_ms / 1000,
            cap_s=self.max_delay_ms / 1000,
            jitter=self.jitter,
            oom=self.oom,
            run_timeout_s=self.timeout_s,
            silence_timeout_s=self.silence_s,
            max_resubmits=self.max_resubmits,
            max_takeovers=self.max_takeovers,
        )
