"""Every setting of genflow, with its meaning and unit: TOML file < environment < command-line flag.

The file is `genflow.toml` in the working folder, or what `GENFLOW_CONFIG` names. The environment's twin of
`queue_limit` is `GENFLOW_QUEUE_LIMIT`; of `portrait.checkpoint`, `GENFLOW_PORTRAIT__CHECKPOINT`.
docs/reference/settings.md is made from the descriptions here.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from genflow.failures import Policy
from genflow.protocol import Timing
from genflow.sealing import Sealer, read_keys


def _parse_servers(value: Any) -> Any:
    """Accept `gpu0=http://host:8188,gpu1=…`, a list of such pairs, or a table whose values are addresses or tables."""
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if isinstance(value, list | tuple):
        value = _pairs(value)
    if not isinstance(value, dict):
        return value
    return {name: {"url": given} if isinstance(given, str) else given for name, given in value.items()}


def _pairs(given: Iterable[Any]) -> dict[str, str]:
    servers: dict[str, str] = {}
    for pair in given:
        name, separator, url = str(pair).strip().partition("=")
        if not separator or not name or not url.startswith(("http://", "https://")):
            raise ValueError(f"a server is given as NAME=URL, for example gpu0=http://127.0.0.1:8188, not {pair!r}")
        if name in servers:
            raise ValueError(f"the server name {name!r} is given twice: {servers[name]} and {url.rstrip('/')}")
        servers[name] = url.rstrip("/")
    return servers


def _each_server_once(servers: dict[str, ServerSettings]) -> dict[str, ServerSettings]:
    names: dict[str, str] = {}
    for name, server in servers.items():
        if server.url in names:
            raise ValueError(f"one server under two names: {names[server.url]!r} and {name!r} are both {server.url}")
        names[server.url] = name
    return servers


def _plain_url(url: str, instead: str) -> str:
    """An http(s) address that may be shown; `instead` says where a password belongs."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole:
        raise ValueError("an address looks like http://127.0.0.1:8188")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"no password belongs into an address, which is shown: {instead}")
    if parts.query or parts.fragment:
        raise ValueError("an address has no “?” and no “#”")
    return url.rstrip("/")


_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_UNITS = {"": 1, "b": 1, "mb": 1024**2, "mib": 1024**2, "gb": 1024**3, "gib": 1024**3}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-]+(:[0-9]{1,5})?|https?://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADER = re.compile(
    r"host|connection|upgrade|content-(length|type)|transfer-encoding|accept-encoding|expect|sec-.*", re.IGNORECASE
)


def _memory(value: Any) -> Any:
    """Bytes from a number, or from a text such as `24GB`; a GB is 1,024³ bytes, as the makers of GPUs count."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value)
    unit = None if found is None else _UNITS.get(found[2].lower())
    if found is None or unit is None:
        raise ValueError(f'memory is a number of bytes or a text such as "24GB" or "8192MB", not {value[:40]!r}')
    return int(float(found[1]) * unit)


class ServerSettings(BaseModel):
    """One ComfyUI server, as a table of the file gives it: `[gpu.NAME]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(description="Its address.")
    tags: tuple[str, ...] = Field((), description="Words by which people tell servers apart.")
    vram: Annotated[int | None, BeforeValidator(_memory)] = Field(
        None, gt=0, description='Memory of its GPU, as bytes or `"24GB"`; none = what the server says.'
    )
    headers: dict[str, SecretStr] = Field(
        default_factory=dict, description="Headers sent with every call to it, such as `Authorization`; never shown."
    )
    ca_file: Path | None = Field(
        None, description="PEM file of the certificate that signed the server's; none = those this machine trusts."
    )
    slots: int | None = Field(None, ge=1, le=64, description="Prompts that it holds at a time; none = `slots`.")

    @field_validator("url")
    @classmethod
    def _plain_address(cls, url: str) -> str:
        return _plain_url(url, "send it as a header (`headers`)")

    @field_validator("headers")
    @classmethod
    def _plain_headers(cls, headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"{name[:80]!r} is no name of a header")
            if _OWN_HEADER.fullmatch(name):
                raise ValueError(f"the header {name} is genflow's own and can't be set")
            if not all(" " <= character <= "~" for character in value.get_secret_value()):
                raise ValueError(f"the value of the header {name} must be one line of printable ASCII")
        return headers

    @model_validator(mode="after")
    def _certificate_fits(self) -> ServerSettings:
        if self.ca_file is not None and not self.url.startswith("https://"):
            raise ValueError("ca_file is for an address that begins with https://")
        return self

    def sent_headers(self) -> dict[str, str]:
        """The headers as they go over the wire."""
        return {name: value.get_secret_value() for name, value in self.headers.items()}


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
    store: str | None = Field(
        None,
        description="Where pictures are kept instead: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX;"
        " credentials come from the environment. A folder given here is `data`.",
    )
    store_endpoint: str | None = Field(
        None, description="Address of an S3-compatible or other store of one's own; plain http only if it says so."
    )
    store_region: str | None = Field(None, description="Region of an S3 store; none = AWS_REGION, else us-east-1.")
    store_path_style: bool = Field(
        True, description="S3: the bucket stands in the path of an address (else in its host, also of the endpoint)."
    )
    redirect: bool = Field(
        True, description="Send who asks for a file on to the store's own signed address; off = the API serves it."
    )
    redirect_s: float = Field(900.0, ge=1, le=604_800, description="Seconds that such a signed address works.")

    # The API
    host: str = Field("127.0.0.1", description="Address that the API listens on.")
    port: int = Field(8190, ge=0, le=65_535, description="Port of the API; 0 = a free one.")
    insecure: bool = Field(False, description="Allow an address other than loopback without keys.")
    auth: Literal["auto", "keys", "open"] = Field(
        "auto",
        description="Who may ask: `keys` = who sends a key; `open` = anybody; `auto` = anybody until a key is made.",
    )
    public_url: str | None = Field(None, description="The API's address as clients see it, for links in answers.")
    cors_origins: str = Field(
        "",
        description="Origins of other sites' web pages that may use the API, such as `https://app.example.com`;"
        " several separated by commas.",
    )
    max_streams: int = Field(500, ge=1, description="Event streams of one API process; past it 429 `too_many_streams`.")
    stream_heartbeat_s: float = Field(
        10.0, gt=0, le=15, description="Seconds of silence after which an event stream says that it is still there."
    )
    sealing_key: SecretStr | None = Field(
        None,
        description="Seals the Comfy keys of jobs (`extra_data.api_key_comfy_org`): 32 random bytes as base64, the"
        " same for API and workers; of several, separated by commas, the first seals. None = those keys are dropped.",
    )
    queue_limit: int = Field(10_000, ge=1, description="Live jobs the queue accepts; past it 429 `queue_full`.")
    retention_s: float = Field(
        30 * 86_400.0, gt=0, description="Seconds that a finished job and its pictures are kept."
    )
    blob_grace_s: float = Field(
        86_400.0, ge=0, description="Seconds that the bytes of a file are kept which nothing refers to any more."
    )
    max_workflow_bytes: int = Field(4 * 1024 * 1024, ge=1_024, description="Largest workflow accepted, in bytes.")
    max_batch_bytes: int = Field(64 * 1024 * 1024, ge=1_024, description="Largest jobs file accepted, in bytes.")
    validation: Literal["strict", "lenient"] = Field(
        "strict",
        description="A workflow that needs more than any one server has: `strict` refuses it, `lenient` lets it wait.",
    )
    idempotency: Literal["contract", "replay"] = Field(
        "contract",
        description="The same request again under its Idempotency-Key: `contract` refuses it as the Comfy API v2 does,"
        " `replay` answers with the job that it made.",
    )
    max_photo_bytes: int = Field(20 * 1024 * 1024, ge=1_024, description="Largest photo accepted, in bytes.")
    max_photo_pixels: int = Field(50_000_000, ge=65_536, description="Most pixels a photo may have once decoded.")
    max_asset_bytes: int = Field(
        2 * 1024**3, ge=1_024, description="Largest file accepted as an asset, in bytes; ComfyUI itself takes 100 MB."
    )
    url_ttl_s: float = Field(
        3_600.0, gt=0, description="Seconds that a link to a picture opens it without a key, at least."
    )
    min_photo_side: int = Field(128, ge=1, description="Shortest side of a photo, in pixels.")

    templates: Path | None = Field(
        None, description="Folder of your own templates, `NAME.toml` or `NAME.json` each; none = the portrait alone."
    )
    fetch_allow: str = Field(
        "",
        description="Hosts and networks that a URL in a request may lead to although they are not of the public"
        " internet, such as `files.lan,10.1.0.0/16`.",
    )
    max_fetch_bytes: int = Field(
        100 * 1024 * 1024, ge=1_024, description="Largest file fetched from a URL in a request, in bytes."
    )

    # The worker and its servers
    gpu: Annotated[
        dict[str, ServerSettings], NoDecode, BeforeValidator(_parse_servers), AfterValidator(_each_server_once)
    ] = Field(default_factory=dict, description="ComfyUI servers: NAME=URL, several separated by commas.")
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
    no_server_s: float = Field(
        5.0, gt=0, description="Seconds until servers are looked for again while none is healthy."
    )
    max_queue: int | None = Field(
        None, ge=1, description="Prompts of others on a server from which on it gets no new work; none = any number."
    )
    quarantine_s: float = Field(60.0, gt=0, description="Seconds that a quarantined server gets no new work.")
    stuck_s: float = Field(
        900.0, gt=0, description="Seconds that a prompt waits behind one and the same, until its server is distrusted."
    )
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
    previews: bool = Field(False, description="Temporary files, such as those of PreviewImage, are results too.")
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
    scrub: bool = Field(True, description="Take an ended job's history entry, files and inputs away from its servers.")
    server_lost_after_s: float | None = Field(
        None, gt=0, description="Seconds unseen after which a server's open submits are given up; none = never."
    )

    # Jobs from RabbitMQ
    rabbitmq: str | None = Field(
        None,
        description="RabbitMQ to take jobs from, amqp(s)://USER:PASSWORD@HOST/VHOST; never shown. None = none.",
    )
    rabbitmq_queue: str = Field(
        "renders",
        min_length=1,
        max_length=200,
        description="Queue that the jobs lie in; what can't run goes to the one with `.dead` behind its name.",
    )
    ack: Literal["terminal", "accepted"] | None = Field(
        None,
        description="When a message is acknowledged: once its job is over (`terminal`, a worker's default), or once it"
        " is recorded (`accepted`, that of `genflow intake`).",
    )
    prefetch: int | None = Field(
        None,
        ge=1,
        le=65_535,
        description="Most messages held unacknowledged; none = the slots of the worker's servers; 1000 if `accepted`.",
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

    @model_validator(mode="before")
    @classmethod
    def _folder_by_its_other_name(cls, given: Any) -> Any:
        store = given.get("store") if isinstance(given, dict) else None
        if store is None or "://" in str(store):
            return given
        return {name: value for name, value in given.items() if name != "store"} | {"data": store}

    @field_validator("store")
    @classmethod
    def _store_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError("the store's address is shown: its credentials belong into the environment")
        if parts.scheme not in ("s3", "gs", "az") or not _BUCKET.fullmatch(parts.netloc):
            raise ValueError("a store is a folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX")
        return url.rstrip("/")

    @field_validator("store_endpoint")
    @classmethod
    def _endpoint(cls, url: str | None) -> str | None:
        return url if url is None else _plain_url(url, "credentials belong into the environment")

    @field_validator("sealing_key")
    @classmethod
    def _whole_keys(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None:
            read_keys(given.get_secret_value())
        return given

    @property
    def sealer(self) -> Sealer:
        """Seals and opens by `sealing_key`."""
        return Sealer(read_keys("" if self.sealing_key is None else self.sealing_key.get_secret_value()))

    @field_validator("cors_origins")
    @classmethod
    def _whole_origins(cls, given: str) -> str:
        for origin in filter(None, map(str.strip, given.split(","))):
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(f"an origin looks like https://app.example.com, without a path, not {origin[:100]!r}")
        return given

    @property
    def allowed_origins(self) -> frozenset[str]:
        """The origins of `cors_origins`, each by itself."""
        return frozenset(filter(None, map(str.strip, self.cors_origins.split(","))))

    @field_validator("rabbitmq")
    @classmethod
    def _broker_address(cls, url: str | None) -> str | None:
        try:
            parts = None if url is None else urlsplit(url)
            whole = parts is None or (parts.scheme in ("amqp", "amqps") and bool(parts.hostname) and parts.port != 0)
        except ValueError:
            whole = False
        if not whole:
            raise ValueError("RabbitMQ's address looks like amqp://USER:PASSWORD@HOST:5672/VHOST")
        return url

    @model_validator(mode="after")
    def _timing_holds(self) -> Settings:
        self.timing()
        return self

    @property
    def lenient(self) -> bool:
        """Whether a workflow that no single server can run is let in, to wait for one."""
        return self.validation == "lenient"

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
            scrub=self.scrub,
        )
