"""A small model made on the spot, random but complete, for the demo and for tests."""

from __future__ import annotations

import hashlib
from pathlib import Path

from mindnano.checkpoint import synthetic
from mindnano.checkpoint.config import KDAConfig, MLAConfig, ModelConfig, MoEConfig
from mindnano.checkpoint.model_files import ModelFiles, convert_in_memory

SEED = 2026


def config(layers: int = 8) -> ModelConfig:
    """A bailing_hybrid model of about 5 M parameters with every block of Ling-3.0-tiny, a byte vocabulary."""
    return ModelConfig(
        model_type="bailing_hybrid",
        vocab_size=320,
        hidden_size=192,
        num_layers=layers,
        layer_types=tuple("mla" if layer % 4 == 3 else "kda" for layer in range(layers)),
        rms_norm_eps=1e-6,
        max_position_embeddings=131072,
        tie_word_embeddings=False,
        dense_intermediate_size=512,
        first_k_dense=1,
        kda=KDAConfig(
            num_heads=4, head_dim=64, conv_kernel=4, gate="sigmoid", lower_bound=-5.0, low_rank=False
        ),
        mla=MLAConfig(
            num_heads=4,
            q_lora_rank=64,
            kv_lora_rank=128,
            qk_nope_head_dim=64,
            qk_rope_head_dim=32,
            v_head_dim=64,
            rope_theta=6e6,
            head_gate=True,
        ),
        moe=MoEConfig(
            num_experts=16,
            top_k=4,
            n_group=4,
            topk_group=2,
            intermediate_size=64,
            shared_intermediate_size=64,
            routed_scaling_factor=2.5,
            norm_topk_prob=True,
            score="sigmoid",
        ),
        bos_token_id=257,
        eos_token_ids=(259,),
        pad_token_id=258,
    )


def build(target: str | Path, seed: int = SEED, recipe: str = "mixed", *, force: bool = False) -> int:
    """Writes the small model as a packed file; its size in bytes."""
    return synthetic.synth(config(), target, recipe, seed, force=force)


def open_builtin(recipe: str) -> ModelFiles:
    """The small model in memory, without a file."""
    shape = config()
    extras = synthetic.extras(shape)
    weights, nbytes = convert_in_memory(shape, recipe, synthetic.RandomProducer(shape, SEED))
    return ModelFiles(
        path=None,
        config=shape,
        tokenizer_json=extras.tokenizer_json,
        chat_template=extras.chat_template,
        generation=extras.generation,
        synthetic=True,
        recipe=recipe,
        identity=hashlib.blake2b(shape.to_json() + f"{SEED} {recipe}".encode(), digest_size=16).hexdigest(),
        weights=weights,
        nbytes=nbytes,
    )
