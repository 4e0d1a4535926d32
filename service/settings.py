"""ONE frozen Settings, read once from the environment and the command line."""

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from model.source import EMBEDDED, model_name

PREFIX = "HEADLIGHT_"


class SettingsError(Exception):
    """Settings that cannot be; the message says in one sentence which and what to change."""


class Settings(BaseSettings):
    """Serve transformer encoders over HTTP: embeddings and per-head attention maps."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        cli_prog_name="headlight",
        cli_kebab_case=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        protected_namespaces=(),
    )

    host: Annotated[str, Field(min_length=1)] = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    model: str = Field(
        EMBEDDED,
        description="a folder, a hub name, or several as name=source,name=source; the first is the default",
    )
    backend: Literal["auto", "torch", "onnx"] = Field(
        "auto", description="what runs the model; auto: torch where it is installed, else onnx"
    )
    device: str = Field(
        "auto", pattern=r"^(auto|cpu|cuda|cuda:\d+)$", description="auto, cpu, cuda or cuda:N"
    )
    tensorrt: bool = Field(default=False, description="run ONNX graphs through TensorRT on CUDA devices")
    dtype: Literal["auto", "float32", "bfloat16", "float16", "int8"] = Field(
        "auto", description="precision of the products; auto: bfloat16 where the hardware multiplies it"
    )
    threads: int | None = Field(None, ge=1, description="cores that the model uses; all by default")
    max_batch_tokens: int | None = Field(
        None, ge=1, description="token budget of one batch; measured at the start by default"
    )
    max_queue_tokens: int | None = Field(
        None, ge=1, description="tokens that may wait; beyond, 429; 64 batches by default"
    )
    max_inputs: int = Field(256, ge=1, description="texts per request")
    max_body_bytes: int = Field(2 * 2**20, ge=1, description="size of a request body")
    max_response_bytes: int = Field(64 * 2**20, ge=1, description="size of an answer")
    request_timeout_s: float = Field(30.0, gt=0, le=86_400, description="seconds until a request is given up")
    drain_timeout_s: float = Field(
        30.0, gt=0, le=86_400, description="seconds to answer what is accepted at exit"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="what is logged")
    log_format: Literal["text", "json"] = Field("text", description="text, or one JSON object per line")

    @field_validator("threads", "max_batch_tokens", "max_queue_tokens", mode="before")
    @classmethod
    def _auto(cls, value: object) -> object:
        """Take "auto" for the default of what is found out at the start."""
        return None if value == "auto" else value

    @field_validator("model")
    @classmethod
    def _readable_models(cls, value: str) -> str:
        parse_models(value)
        return value

    @property
    def models(self) -> dict[str, str]:
        """The served models: name -> source, the default first."""
        return parse_models(self.model)


def parse_models(value: str) -> dict[str, str]:
    """Read `source` or `name=source,name=source`; raises ValueError."""
    models: dict[str, str] = {}
    for part in value.split(","):
        before, equals, after = part.strip().partition("=")
        name, source = (before.strip(), after.strip()) if equals else (model_name(before), before)
        if not name or not source:
            raise ValueError(f"{part!r} names no model; write a folder, a hub name, or name=source")
        if name in models:
            raise ValueError(f"two models are called {name!r}; give them names: name=source,name=source")
        models[name] = source
    return models


def read_settings(arguments: Sequence[str] = ()) -> Settings:
    """Read the environment and command-line arguments (which win); raises SettingsError."""
    try:
        return Settings(_cli_parse_args=list(arguments))
    except ValidationError as error:
        sentences = [
            f"{PREFIX}{'_'.join(str(part) for part in e['loc']).upper()} is {e['input']!r}: {e['msg']}."
            for e in error.errors()
        ]
        raise SettingsError(" ".join(sentences)) from error


def unknown_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """List environment variables that look like settings and are none: most often a slip of the hand."""
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
