"""What the operations give on fixed inputs, and the committed small models in every recipe and cache: one line each.

A line ends in a digest of the results' bits, so that two machines' outputs can be compared with diff. Run it from the
repository's root: python -m cross.answers ISA [quick]. quick: each recipe and each cache once a model.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from itertools import product

import numpy as np

from mindnano import LLM, SamplingParams, kernels
from mindnano.bench.operations import TABLE
from tests.model import fixtures

CASES = ("bailing", "kimi")
RECIPES = ("native", "w8", "mixed", "w4")
CACHES = (("bf16", "latent"), ("int8", "latent"), ("fp16", "expanded"), ("int8", "expanded"))


def digest(*arrays: np.ndarray) -> str:
    together = hashlib.blake2b(digest_size=8)
    for array in arrays:
        together.update(np.ascontiguousarray(array).tobytes())
    return together.hexdigest()


def operations() -> None:
    """Inputs and results of each operation of the benchmark's table at its small shapes."""
    for op in TABLE:
        rng = np.random.default_rng(zlib.crc32(op.name.encode()))
        results = [compared.got for compared in op.compared(rng)]
        print(f"{op.name}: {digest(*results)}", flush=True)


def models(quick: bool) -> None:
    for case in CASES:
        chosen = zip(RECIPES, CACHES, strict=True) if quick else product(RECIPES, CACHES)
        for recipe, (kv, layout) in chosen:
            with LLM(
                fixtures.folder(case),
                recipe=recipe,
                kv=kv,
                kv_layout=layout,
                context=256,
                cache_budget=0,
                threads=2,
            ) as llm:
                prompt = fixtures.tokens(case, 65)
                logits = llm.logits(prompt)
                params = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
                tokens = llm.generate(prompt, params).token_ids
            assert np.isfinite(logits).all()
            words = " ".join(map(str, tokens))
            print(f"{case} {recipe} {kv} {layout}: {words} {digest(logits)}", flush=True)


def main() -> None:
    kernels.set_isa(sys.argv[1])
    operations()
    models("quick" in sys.argv[2:])


if __name__ == "__main__":
    main()
