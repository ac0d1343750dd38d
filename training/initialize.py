"""First weights, such that a new model can already look up what followed a token earlier.

After "Mimetic Initialization Helps State Space Models Learn to Recall" (Trockman et al., arXiv 2410.11135): queries and
keys start with the same projection, so that equal tokens match; the output projection starts as the transposed value
projection, and `lm_head` as the embeddings, so that what is read comes out as the token it was. From independent random
matrices nothing of retrieval was learned in half a million tokens.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from training.model import KDA, MLA, Model

EMBEDDING = 0.7
OUTPUT_GAIN = 0.5
# Of each KDA head: how many tokens back the query and the key look. A key one further back than the query finds what
# came after the query's token: "x y ... x" gives y; (1, 2) finds y in "x is y ... x is".
LOOK_BACK = ((0, 1), (1, 2), (2, 3), (0, 2))


def initialize(model: Model, generator: torch.Generator) -> None:
    """Fills all parameters; norms stay 1."""
    from training.model import KDA

    deep = 1 / math.sqrt(2 * model.shape.num_hidden_layers)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                continue
            gain = deep if name.endswith(("down_proj.weight", "experts_down")) else 1.0
            p.normal_(0.0, gain / math.sqrt(p.shape[-1]), generator=generator)
        embeddings = model.word_embeddings.weight.normal_(0.0, EMBEDDING, generator=generator)
        model.lm_head.weight.copy_(embeddings * (0.5 / EMBEDDING / math.sqrt(embeddings.shape[1])))
        for layer in model.layers:
            (_kda if isinstance(layer.attention, KDA) else _mla)(layer.attention, generator)


def _kda(kda: KDA, generator: torch.Generator) -> None:
    for weight in (kda.q_proj.weight, kda.v_proj.weight):
        torch.nn.init.orthogonal_(weight, gain=math.sqrt(2), generator=generator)
    kda.k_proj.weight.copy_(kda.q_proj.weight)
    kda.o_proj.weight.copy_(kda.v_proj.weight.t() * (OUTPUT_GAIN / math.sqrt(2)))
    for conv in (kda.q_conv1d, kda.k_conv1d, kda.v_conv1d):
        conv.weight.normal_(0.0, 0.1, generator=generator)
    heads = torch.arange(kda.heads * kda.dim) // kda.dim
    for head in range(kda.heads):
        query, key = LOOK_BACK[head % len(LOOK_BACK)]
        kda.q_conv1d.weight[heads == head, 0, -1 - query] += 1
        kda.k_conv1d.weight[heads == head, 0, -1 - key] += 1
    kda.v_conv1d.weight[:, 0, -1] += 1
    kda.A_log.zero_()
    kda.dt_bias.uniform_(-11.0, -2.0, generator=generator)  # half of a state is gone after 1 to 8,000 tokens
    kda.b_proj.weight.mul_(0.5)


def _mla(mla: MLA, generator: torch.Generator) -> None:
    s = mla.shape
    both = mla.kv_a_proj_with_mqa.weight[: s.kv_lora_rank]
    common = min(s.q_lora_rank, s.kv_lora_rank)
    mla.q_a_proj.weight[:common] = both[:common]
    queries = mla.q_b_proj.weight.view(s.num_attention_heads, -1, s.q_lora_rank)
    up = mla.kv_b_proj.weight.view(s.num_attention_heads, -1, s.kv_lora_rank)
    keys, values = up[:, : s.qk_nope_head_dim], up[:, s.qk_nope_head_dim :]
    keys.mul_(1.3)
    queries[:, : s.qk_nope_head_dim, :common] = keys[:, :, :common]
    whole = (values @ both).flatten(0, 1)  # [heads x v, hidden]
    mla.dense.weight.copy_(whole.t() * (OUTPUT_GAIN / math.sqrt(whole.shape[0] / whole.shape[1])))
