"""Small random models of the transformers classes, every weight, bias and gate random, and what they say.

Weights have values that the stored type holds exactly; the classes compute with them in fp32.
"""

from __future__ import annotations

import zlib

import ml_dtypes
import numpy as np
import torch
import transformers
from transformers import (
    BailingHybridConfig,
    BailingHybridForCausalLM,
    KimiLinearConfig,
    KimiLinearForCausalLM,
)

from tests.oracle.cases import GREEDY_PROMPT, GREEDY_STEPS, LENGTHS, Case, rows_kept, tokens_of

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)  # threads only wait for each other on rows this small
# A choice between experts that is closer than this may fall either way in fp32: such a sequence decides nothing.
LEAST_MARGIN = 4e-6
INT4_GROUP = 32
_DTYPES = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}


def _values(name: str, shape: tuple[int, ...], seed: int, case: Case) -> np.ndarray:
    """A tensor's values. RandomState's streams are frozen, so they are the same wherever they are drawn."""
    z = np.random.RandomState(zlib.crc32(f"{seed} {name}".encode())).standard_normal(shape)
    if name.endswith(
        ("A_log", "dt_bias", "e_score_correction_bias")
    ):  # stored in F32: more bits than a BF16 has
        scale = 0.2 if name.endswith("bias") and "dt" not in name else 0.7
        return np.round(z * scale * 4096) / 4096
    if "norm" in name:
        z = 1 + 0.3 * z
    elif "conv1d" in name:
        z = z * 0.75
    else:
        z = z * (1.0 if "embed" in name else 1.3 / shape[-1] ** 0.5)
    if case.int4 and "experts." in name and "shared" not in name:
        return int4_grid(z)[0]
    return (_bf16(z) if case.dtype == "BF16" else z.astype(_DTYPES[case.dtype])).astype(np.float64)


def _bf16(x: np.ndarray) -> np.ndarray:
    """Through FP32, as ml_dtypes itself rounded until 0.7: the committed fixtures have these bits."""
    return x.astype(np.float32).astype(ml_dtypes.bfloat16)


def int4_grid(w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(values, integers -8..7, BF16 scales) of the nearest compressed-tensors int4 weights, groups along the inputs."""
    groups = w.reshape(*w.shape[:-1], -1, INT4_GROUP)
    scales = _bf16(np.abs(groups).max(-1, keepdims=True) / 7)
    q = np.clip(np.round(groups / scales.astype(np.float64)), -8, 7)
    values = (q * scales.astype(np.float64)).reshape(w.shape)
    return values, q.reshape(w.shape).astype(np.int8), scales[..., 0]


def make_model(case: Case, seed: int) -> torch.nn.Module:
    """The class's model of a case; the same seed gives the same weights on every machine."""
    kimi = case.family == "kimi_linear"
    config = (KimiLinearConfig if kimi else BailingHybridConfig)(**case.all_options)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = (KimiLinearForCausalLM if kimi else BailingHybridForCausalLM)(config).float().eval()
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if not name.endswith("inv_freq"):
                tensor.copy_(torch.from_numpy(_values(name, tuple(tensor.shape), seed, case)))
    return model


@torch.no_grad()
def logits_of(model: torch.nn.Module, tokens: list[int]) -> np.ndarray:
    """Logits after each token, the whole sequence at once, without a cache."""
    return model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


def _can_cache(model: torch.nn.Module) -> bool:
    """The class's cache asks an attention layer for its length: without one it fails."""
    return "full_attention" in model.config.layer_types


@torch.no_grad()
def greedy_of(model: torch.nn.Module, prompt: list[int], steps: int) -> list[int]:
    """Greedy tokens by the class's own generation with its own cache."""
    model.generation_config.eos_token_id = None  # an end token is a token like any other
    ids = torch.tensor([prompt])
    out = model.generate(  # without a mask it would leave out what it takes for padding
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=steps,
        use_cache=_can_cache(model),
    )
    assert out.shape[1] == len(prompt) + steps
    return out[0, len(prompt) :].tolist()


@torch.no_grad()
def margin_of(model: torch.nn.Module, tokens: list[int]) -> float:
    """The closest choice of a group or an expert in the sequence, in units of the score."""
    config = model.config
    routed = model(torch.tensor([tokens]), use_cache=False, output_router_logits=True).router_logits or ()
    gates = [layer.mlp.gate for layer in model.model.layers if hasattr(layer.mlp, "gate")]
    least = np.inf
    for logits, gate in zip(routed, gates, strict=True):
        choice = (
            logits.double().reshape(-1, config.num_local_experts).sigmoid()
            + gate.e_score_correction_bias.double()
        )
        groups = choice.reshape(len(choice), config.n_group, -1)
        if config.topk_group < config.n_group:
            score = groups.topk(2, -1)[0].sum(-1)
            least = min(least, _gap(score, config.topk_group))
            keep = torch.zeros_like(score).scatter(1, score.topk(config.topk_group, -1)[1], 1).bool()
            groups = groups.masked_fill(~keep[..., None], -torch.inf)
        least = min(least, _gap(groups.reshape(len(choice), -1), config.num_experts_per_tok))
    return least


def _gap(score: torch.Tensor, chosen: int) -> float:
    """The least distance between the last that is chosen and the first that isn't."""
    if chosen >= score.shape[-1]:
        return np.inf
    best = score.topk(chosen + 1, -1)[0]
    return float((best[:, chosen - 1] - best[:, chosen]).min())


def decided_tokens(model: torch.nn.Module, seed: int, count: int) -> list[int]:
    """Random tokens on which every choice of experts is clear enough for fp32."""
    for attempt in range(50):
        tokens = tokens_of(seed + 1000 * attempt, count)
        if margin_of(model, tokens) > LEAST_MARGIN:
            return tokens
    raise AssertionError(f"no sequence of {count} tokens with clear choices in 50 attempts")


def decided_greedy(model: torch.nn.Module, seed: int) -> tuple[list[int], list[int]]:
    """A prompt and its greedy continuation, with clear choices of experts and of tokens."""
    for attempt in range(50):
        prompt = tokens_of(seed + 1000 * attempt, GREEDY_PROMPT)
        tokens = greedy_of(model, prompt, GREEDY_STEPS)
        whole = prompt + tokens
        logits = logits_of(model, whole[:-1])[len(prompt) - 1 :]
        best = np.sort(logits, -1)
        clear = float((best[:, -1] - best[:, -2]).min()) > 1e-4 * float(np.abs(best).max())
        if clear and margin_of(model, whole) > LEAST_MARGIN:
            assert np.array_equal(logits.argmax(-1), tokens), (
                "the class with its cache isn't the class without"
            )
            return prompt, tokens
    raise AssertionError("no greedy continuation with clear choices in 50 attempts")


def expected(model: torch.nn.Module, seed: int) -> dict[str, np.ndarray]:
    """What a fixture holds beside the weights."""
    out: dict[str, np.ndarray] = {}
    for length in LENGTHS:
        tokens = decided_tokens(model, seed, length)
        out[f"tokens.{length}"] = np.array(tokens, np.int32)
        out[f"logits.{length}"] = logits_of(model, tokens)[rows_kept(length)]
    prompt, tokens = decided_greedy(model, seed)
    out["greedy.prompt"] = np.array(prompt, np.int32)
    out["greedy.tokens"] = np.array(tokens, np.int32)
    return out
