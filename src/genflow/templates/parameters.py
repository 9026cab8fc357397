"""What a client may say about a portrait, and the refusal of everything else.

Pure. Each rule stands once, in a table; a refusal names the field, the rule it broke and what came.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from genflow.errors import GenflowError, clean_text
from genflow.workflow import unfit_character

PROMPT_LIMIT = 10_000
"""Longest prompt, in characters."""

SEED_LIMIT = 2**64 - 1
"""Largest seed that KSampler takes."""

# The choices of KSampler in ComfyUI 0.33's /object_info.
SAMPLERS = tuple(
    """
    euler euler_cfg_pp euler_ancestral euler_ancestral_cfg_pp heun heunpp2 exp_heun_2_x0 exp_heun_2_x0_sde dpm_2
    dpm_2_ancestral lms dpm_fast dpm_adaptive dpmpp_2s_ancestral dpmpp_2s_ancestral_cfg_pp dpmpp_sde dpmpp_sde_gpu
    dpmpp_2m dpmpp_2m_cfg_pp dpmpp_2m_sde dpmpp_2m_sde_gpu dpmpp_2m_sde_heun dpmpp_2m_sde_heun_gpu dpmpp_3m_sde
    dpmpp_3m_sde_gpu ddpm lcm ipndm ipndm_v deis res_multistep res_multistep_cfg_pp res_multistep_ancestral
    res_multistep_ancestral_cfg_pp gradient_estimation gradient_estimation_cfg_pp er_sde seeds_2 seeds_3 sa_solver
    sa_solver_pece ddim uni_pc uni_pc_bh2
    """.split()  # noqa: SIM905
)
SCHEDULERS = tuple(
    "simple sgm_uniform karras exponential ddim_uniform beta normal linear_quadratic kl_optimal".split()  # noqa: SIM905
)

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?")


def invalid_parameter(field: str, reason: str, message: str, *, limit: Any = None, got: Any = None) -> GenflowError:
    """The refusal of one field of a request: `reason` is a stable word, `message` what would be right."""
    details = {"field": field, "reason": reason, "limit": limit, "got": got}
    return GenflowError("invalid_parameter", f"{field}: {message}", details=details)


def shown(value: Any) -> Any:
    """What came, short and clean enough to be sent back."""
    if isinstance(value, bool | type(None)):
        return value
    if isinstance(value, int) and abs(value) <= 2**64:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return clean_text(text, 100)


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within bounds, both included, and a multiple of `step`."""

    low: int
    high: int
    step: int = 1

    def read(self, field: str, value: Any, *, form: bool) -> int:
        """The number; a form's text is read as one."""
        if form and isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
            value = int(value)
        limit = [self.low, self.high]
        if not isinstance(value, int) or isinstance(value, bool):
            raise invalid_parameter(field, "not_a_whole_number", f"must be a whole number, {self._bounds()}",
                                    limit=limit, got=shown(value))  # fmt: skip
        if not self.low <= value <= self.high:
            raise invalid_parameter(field, "out_of_range", f"must be {self._bounds()}", limit=limit, got=shown(value))
        if value % self.step:
            raise invalid_parameter(field, "not_a_multiple", f"must be a multiple of {self.step}",
                                    limit=self.step, got=value)  # fmt: skip
        return value

    def _bounds(self) -> str:
        return f"from {self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class Number:
    """A number within bounds, both included."""

    low: float
    high: float

    def read(self, field: str, value: Any, *, form: bool) -> float:
        """The number; a form's text is read as one."""
        if form and isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
            value = float(value)
        limit = [self.low, self.high]
        bounds = f"from {self.low:g} to {self.high:g}"
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise invalid_parameter(field, "not_a_number", f"must be a number, {bounds}", limit=limit, got=shown(value))
        if not self.low <= value <= self.high:
            raise invalid_parameter(field, "out_of_range", f"must be {bounds}", limit=limit, got=shown(value))
        return float(value)


@dataclass(frozen=True, slots=True)
class Text:
    """A text that Postgres and a server can hold, at most `high` characters."""

    low: int
    high: int

    def read(self, field: str, value: Any, *, form: bool) -> str:
        """The text, unchanged."""
        if not isinstance(value, str):
            raise invalid_parameter(field, "not_a_text", "must be a text", got=shown(value))
        if len(value) > self.high:
            raise invalid_parameter(
                field, "too_long", f"must be at most {self.high} characters", limit=self.high, got=len(value)
            )
        if self.low and not value.strip():
            raise invalid_parameter(field, "empty", "must not be empty", limit=self.low, got=shown(value))
        if unfit := unfit_character(value):
            raise invalid_parameter(field, "unfit_text", f"holds {unfit}, which no server can keep", got=shown(value))
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a list of words."""

    words: tuple[str, ...]

    def read(self, field: str, value: Any, *, form: bool) -> str:
        """The word."""
        if not isinstance(value, str) or value not in self.words:
            near = difflib.get_close_matches(value, self.words, 1) if isinstance(value, str) else []
            hint = f"; did you mean {near[0]}?" if near else ""
            raise invalid_parameter(
                field, "unknown_choice", f"must be one of {', '.join(self.words) or 'nothing (none is allowed)'}{hint}",
                limit=list(self.words), got=shown(value),
            )  # fmt: skip
        return value


@dataclass(frozen=True, slots=True)
class Truth:
    """True or false."""

    def read(self, field: str, value: Any, *, form: bool) -> bool:
        """The truth value; a form's text is read as one."""
        if form and isinstance(value, str):
            value = {"true": True, "false": False}.get(value.strip().lower(), value)
        if not isinstance(value, bool):
            raise invalid_parameter(field, "not_a_truth_value", "must be true or false",
                                    limit=[True, False], got=shown(value))  # fmt: skip
        return value


Rule = Whole | Number | Text | Choice | Truth

RULES: dict[str, Rule] = {
    "prompt": Text(1, PROMPT_LIMIT),
    "negative_prompt": Text(0, PROMPT_LIMIT),
    "lora_strength": Number(-2, 2),
    "face_strength": Number(0, 3),
    "seed": Whole(0, SEED_LIMIT),
    "steps": Whole(1, 100),
    "cfg": Number(0, 30),
    "width": Whole(256, 2048, 8),
    "height": Whole(256, 2048, 8),
    "sampler": Choice(SAMPLERS),
    "scheduler": Choice(SCHEDULERS),
    "count": Whole(1, 8),
}


def random_seed() -> int:
    """A seed from the whole range."""
    return secrets.randbelow(SEED_LIMIT + 1)


@dataclass(frozen=True, slots=True)
class Parameters:
    """One portrait as asked for; `count` pictures come out of one run."""

    prompt: str
    seed: int
    negative_prompt: str = ""
    lora: str | None = None
    lora_strength: float = 0.8
    face_strength: float = 0.85
    steps: int = 20
    cfg: float = 6.0
    width: int = 512
    height: int = 640
    sampler: str = "euler"
    scheduler: str = "normal"
    count: int = 1

    def as_json(self) -> dict[str, Any]:
        """Every parameter by name, defaults and the drawn seed included."""
        return asdict(self)


def refuse_unknown(fields: Iterable[str], known: Sequence[str]) -> None:
    """GenflowError `invalid_parameter` for the first field that is none of the known ones."""
    for field in fields:
        if field not in known:
            near = difflib.get_close_matches(field, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise invalid_parameter(
                clean_text(field, 80), "unknown_field", f"there is no such field{hint}", limit=sorted(known)
            )


def read_parameters(
    fields: Mapping[str, Any],
    loras: Mapping[str, str],
    *,
    form: bool = False,
    others: tuple[str, ...] = (),
    draw_seed: Callable[[], int] = random_seed,
) -> Parameters:
    """The parameters from a request's fields.

    `form`: the values are a form's texts, so numbers are read from text and an empty field counts as absent.
    `loras`: the style LoRAs that may be named. `others`: fields that the caller reads itself.
    Raises GenflowError `invalid_parameter`, whose details hold field, reason, limit and what came.
    """
    refuse_unknown(fields, (*RULES, "lora", *others))
    absent: tuple[Any, ...] = (None, "") if form else (None,)
    values: dict[str, Any] = {
        field: rule.read(field, fields[field], form=form)
        for field, rule in RULES.items()
        if field in fields and (fields[field] not in absent or field == "prompt")
    }
    if "prompt" not in values:
        raise invalid_parameter("prompt", "missing", "is required: say what the portrait should show")
    if fields.get("lora") not in (None, ""):
        values["lora"] = Choice(tuple(sorted(loras))).read("lora", fields["lora"], form=form)
    if "seed" not in values:
        values["seed"] = draw_seed()
    return Parameters(**values)
