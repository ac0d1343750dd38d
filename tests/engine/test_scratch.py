"""The plan's scratch against what an engine really takes, layout by layout."""

import pytest

from mindnano import LLM, SamplingParams
from mindnano.checkpoint import tiny
from mindnano.engine.memory import scratch


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("tiny") / "model.mn"
    tiny.build(target)
    return target


@pytest.mark.parametrize("layout", ["latent", "expanded"])
@pytest.mark.parametrize("kv", ["bf16", "int8", "fp16", "fp32"])
def test_planned_scratch_is_what_is_taken(path, layout, kv):
    """The expanded history and the prefill's workspace to the byte, a decode step's to its smallest arrays."""
    threads, tokens, block = 2, 1500, 1024
    with LLM(path, context=2048, kv=kv, kv_layout=layout, threads=threads, prefill_block=block) as llm:
        llm.generate([i % 250 for i in range(tokens)], SamplingParams(max_tokens=3, ignore_eos=True))
        config, model = llm.config, llm._model
        history = next(layer.mla.device.cpu.history for layer in model.layers if layer.mla is not None)
        heads = min(threads, config.mla.num_heads)
        planned = scratch.history_bytes(config, kv, threads, tokens, dense=False)
        assert planned == history.bytes_for(tokens, heads)
        hidden = scratch._hidden(
            512, config.dense_intermediate_size, dense=False
        )  # the kernel's, and the largest
        planned = scratch.prefill_bytes(config, layout, block, dense=False)
        assert planned - hidden == model.prefill_scratch.nbytes
        planned = scratch.decode_bytes(config, layout, 1, dense=False)
        assert abs(planned - model.decode_scratch.nbytes) < 1 << 10
