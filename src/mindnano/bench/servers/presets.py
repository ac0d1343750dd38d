"""How each known server is started."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from mindnano.bench.servers.setting import Setting
from mindnano.errors import MindNanoError

HOST = "127.0.0.1"
_LLAMA_TYPES = {"bf16": "bf16", "fp16": "f16", "int8": "q8_0", "fp32": "f32"}


def mindnano(setting: Setting, port: int) -> list[str]:
    """`mindnano serve` with the prefix cache off, so that the KV cache alone is measured."""
    program = [_program(setting.binary)] if setting.binary else [sys.executable, "-m", "mindnano"]
    command = [
        *program,
        "serve",
        *([setting.model] if setting.model else []),
        "--host",
        HOST,
        "--port",
        str(port),
        "--ctx",
        str(setting.context),
        "--slots",
        str(setting.slots),
    ]
    if "--cache-budget" not in setting.extra:
        command += ["--cache-budget", "0"]  # fmt: skip
    for option, value in (
        ("--kv", setting.kv),
        ("--kv-layout", setting.kv_layout),
        ("--device", setting.device),
    ):
        if value is not None:
            command += [option, value]
    return command + (["--threads", str(setting.threads)] if setting.threads is not None else [])


def llama_server(setting: Setting, port: int) -> list[str]:
    """llama.cpp's llama-server. Its context is that of all slots together; q8_0 values need flash attention."""
    if setting.model is None:
        raise MindNanoError("preset llama-server: expected a GGUF file as MODEL, got none")
    if setting.kv_layout not in (None, "latent", "expanded"):
        raise MindNanoError(f"preset llama-server: no layout {setting.kv_layout!r}")
    command = [_program(setting.binary or "llama-server"), "--model", setting.model, "--host", HOST,
               "--port", str(port), "--parallel", str(setting.slots), "--ctx-size",
               str(setting.context * setting.slots)]  # fmt: skip
    if setting.kv is not None:
        kind = _LLAMA_TYPES[setting.kv]
        command += ["--cache-type-k", kind, "--cache-type-v", kind]
        command += ["--flash-attn", "on"] if setting.kv == "int8" else []
    if setting.threads is not None:
        command += ["--threads", str(setting.threads)]
    return command


def custom(setting: Setting, port: int) -> list[str]:
    """The user's template: words with {binary}, {model}, {host}, {port}, {context}, {kv}, {kv_layout}, {slots},
    {threads}; no shell is involved."""
    if not setting.command:
        raise MindNanoError(
            "preset custom: expected --command, such as 'my-server --model {model} --port {port} --ctx {context}'"
        )
    values = {
        "binary": setting.binary or "", "model": setting.model or "", "host": HOST, "port": port,
        "context": setting.context, "kv": setting.kv or "", "kv_layout": setting.kv_layout or "",
        "slots": setting.slots, "threads": setting.threads or "",
    }  # fmt: skip
    try:
        words = [word.format_map(values) for word in shlex.split(setting.command)]
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise MindNanoError(f"--command: {error} in the template; known are {', '.join(values)}") from None
    return [_program(words[0]), *words[1:]]


PRESETS: dict[str, Callable[[Setting, int], list[str]]] = {
    "mindnano": mindnano, "llama-server": llama_server, "custom": custom
}  # fmt: skip


def command(setting: Setting, port: int) -> list[str]:
    """The command line of a setting. Raises MindNanoError where preset, program or model isn't there."""
    if setting.preset not in PRESETS:
        raise MindNanoError(f"--preset: expected one of {', '.join(PRESETS)}, got {setting.preset!r}")
    if setting.model is not None and setting.preset != "custom" and not Path(setting.model).exists():
        raise MindNanoError(f"{setting.model}: no such model")
    return [*PRESETS[setting.preset](setting, port), *setting.extra]


def guess(binary: str) -> str:
    """The preset of a program by its name."""
    return "llama-server" if Path(binary).name.startswith("llama-server") else "mindnano"


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise MindNanoError(f"{name}: no such program; give its path with --binary")
    return str(Path(found).absolute())
