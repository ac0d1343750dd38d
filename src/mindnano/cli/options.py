"""Options that several commands share. Help, defaults and values are written here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter, Token

from mindnano.errors import MindNanoError
from mindnano.units import parse_bytes, parse_size

if TYPE_CHECKING:
    from mindnano.engine.llm import LLM
    from mindnano.engine.params import SamplingParams

# Equal to cache.kv.FORMATS and LAYOUTS and to checkpoint.RECIPES, which a test checks: importing those would
# make `mindnano --help` load the engine.
KVFormat = Literal["bf16", "int8", "fp16", "fp32"]
KVLayout = Literal["latent", "expanded"]
Recipe = Literal["mixed", "w4", "w8", "bf16", "native"]
Device = Literal["auto", "cpu", "rknpu"]

# Equal to engine.memory.DEFAULT_RESERVE and DEFAULT_CACHE, likewise.
RESERVE, CACHE = 512 << 20, 512 << 20

OPTIONS = Group("Options", sort_key=0)
ENGINE = Group("Engine", sort_key=2)
SAMPLING = Group("Sampling", sort_key=1)


def context(type_: Any, tokens: list[Token] | tuple[Token, ...]) -> int | str:
    return "auto" if tokens[0].value == "auto" else parse_size(tokens[0].value)


def size_in_bytes(type_: Any, tokens: list[Token] | tuple[Token, ...]) -> int:
    return parse_bytes(tokens[0].value)


def parse_biases(given: tuple[str, ...]) -> dict[int, float]:
    """From ID=BIAS each."""
    found: dict[int, float] = {}
    for text in given:
        token, _, bias = text.partition("=")
        try:
            found[int(token)] = float(bias)
        except ValueError:
            raise MindNanoError(f"--logit-bias: expected ID=BIAS such as 198=-100, got {text!r}") from None
    return found


Model = Annotated[
    str | None,
    Parameter(show_default=False, help="Checkpoint folder or packed file; left out, the built-in model."),
]
Json = Annotated[
    bool, Parameter(name="--json", negative="", help="Print one JSON object as the last line of stdout.")
]
Threads = Annotated[
    int | None, Parameter(help="Threads; left out, one for each of the cpus.", show_default=False)
]
Cpus = Annotated[
    str,
    Parameter(
        metavar="auto|all|LIST",
        help="Processors that threads keep to, such as 4-7; auto: the big cores where others are little.",
    ),
]


MemoryReserve = Annotated[
    int,
    Parameter(
        group=ENGINE,
        converter=size_in_bytes,
        metavar="SIZE",
        help="Memory to leave to others, such as 512MiB.",
        show_default="512MiB",
    ),
]
CacheBudget = Annotated[
    int,
    Parameter(
        group=ENGINE,
        converter=size_in_bytes,
        metavar="SIZE",
        help="Memory for what later prompts can reuse of earlier ones; 0: none.",
        show_default="512MiB",
    ),
]
AllowTight = Annotated[
    bool,
    Parameter(
        group=ENGINE,
        negative="",
        help="Start also where less than the reserve would be left.",
        show_default=False,
    ),
]
Force = Annotated[
    bool,
    Parameter(
        group=ENGINE,
        negative="",
        help="Allow more context than the model was trained for.",
        show_default=False,
    ),
]


AttentionDevice = Annotated[
    Device,
    Parameter(
        group=ENGINE,
        help="Where a prompt's attention runs. rknpu: the RK3588's NPU; auto: as this machine's curves say.",
    ),
]


@Parameter(name="*", group=ENGINE)
@dataclass(frozen=True)
class EngineOptions:
    """How the model is opened."""

    ctx: Annotated[
        int | str,
        Parameter(
            converter=context,
            metavar="N|auto",
            help="Tokens of context, such as 8K; auto: the most that leaves the memory reserve.",
        ),
    ] = "auto"
    kv: Annotated[
        KVFormat, Parameter(help="Format of the KV cache. fp16 is experimental, fp32 the yardstick.")
    ] = "bf16"
    kv_layout: Annotated[KVLayout, Parameter(help="Layout of the KV cache.")] = "latent"
    threads: Threads = None
    cpus: Cpus = "auto"
    recipe: Annotated[
        Recipe | None,
        Parameter(
            help="Quantize a checkpoint folder while opening it; left out, weights as stored.",
            show_default=False,
        ),
    ] = None
    device: AttentionDevice = "auto"
    memory_reserve: MemoryReserve = RESERVE
    cache_budget: CacheBudget = CACHE
    allow_tight: AllowTight = False
    force: Force = False

    def open(self, model: str | None, **more: Any) -> LLM:
        from mindnano import LLM

        return LLM(
            model,
            context=self.ctx,
            kv=self.kv,
            kv_layout=self.kv_layout,
            threads=self.threads,
            cpus=self.cpus,
            recipe=self.recipe,
            device=self.device,
            memory_reserve=self.memory_reserve,
            cache_budget=self.cache_budget,
            allow_tight=self.allow_tight,
            force=self.force,
            **more,
        )


@Parameter(name="*", group=SAMPLING)
@dataclass(frozen=True)
class SamplingOptions:
    """How tokens are chosen. What is left out is as the model recommends, or off."""

    max_tokens: Annotated[int, Parameter(metavar="N", help="Tokens of the answer at most.")] = 512
    temperature: Annotated[
        float | None, Parameter(help="0: always the likeliest token.", show_default=False)
    ] = None
    top_k: Annotated[
        int | None, Parameter(help="Only the K likeliest tokens; 0: all.", show_default=False)
    ] = None
    top_p: Annotated[
        float | None,
        Parameter(help="Only the likeliest tokens that together reach this probability.", show_default=False),
    ] = None
    min_p: Annotated[
        float | None,
        Parameter(
            help="Only tokens of at least this share of the likeliest one's probability.", show_default=False
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        Parameter(help="Above 1: makes tokens of prompt and answer less likely.", show_default=False),
    ] = None
    presence_penalty: Annotated[
        float, Parameter(help="Taken from the logits of tokens that the answer has.")
    ] = 0.0
    frequency_penalty: Annotated[float, Parameter(help="The same, times how often.")] = 0.0
    seed: Annotated[int | None, Parameter(help="Makes sampling repeatable.", show_default=False)] = None
    stop: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="TEXT",
            help="Text that ends the answer and is cut off; several times.",
            negative="",
            show_default=False,
        ),
    ] = ()
    logit_bias: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="ID=BIAS",
            help="Added to a token's logit; several times.",
            negative="",
            show_default=False,
        ),
    ] = ()
    ignore_eos: Annotated[
        bool, Parameter(negative="", help="Go on after the end token.", show_default=False)
    ] = False
    logprobs: Annotated[
        int | None,
        Parameter(help="Report log-probabilities, with this many alternatives (--json).", show_default=False),
    ] = None

    def params(self, generation: Mapping[str, Any]) -> SamplingParams:
        from mindnano import SamplingParams

        return SamplingParams.for_model(
            generation, **(vars(self) | {"logit_bias": parse_biases(self.logit_bias)})
        )
