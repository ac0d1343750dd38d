"""What was promised is there: a request that doesn't fit any more is refused before it computes, others go on."""

import pytest

from mindnano import LLM, SamplingParams
from mindnano.engine.memory import Available
from mindnano.errors import OutOfMemoryError

GREEDY = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)


@pytest.fixture
def llm():
    with LLM(context=4096, kv="bf16", kv_layout="expanded", slots=2, threads=1, cache_budget=0) as engine:
        yield engine


def have(llm, nbytes):
    llm._scheduler.guard._have = lambda: Available(nbytes, "MemAvailable")


def test_refused_before_it_computes_and_the_others_go_on(llm):
    cold = llm.generate([1, 2, 3], GREEDY)
    running = llm.submit(llm.request([1, 2, 3], GREEDY))
    llm.step()
    have(llm, 1 << 20)
    large = llm.submit(llm.request(list(range(200)) * 10, GREEDY))
    while not (running.finished and large.finished):
        llm.step()
    with pytest.raises(OutOfMemoryError, match="other programs have taken memory") as refused:
        llm.result(large)
    assert refused.value.have == 1 << 20 < refused.value.need
    assert large.started is None and not large.output
    assert llm.result(running).token_ids == cold.token_ids
    assert llm.free_slots == 2


def test_what_is_taken_already_isnt_counted_again(llm):
    prompt = list(range(200)) * 10
    for _ in range(2):  # both slots
        llm.generate_many([prompt, prompt], GREEDY)
    have(llm, 0)
    assert len(llm.generate(prompt, GREEDY).token_ids) == 8


def test_an_answers_pages_are_taken_at_its_beginning(llm):
    """With max_tokens nothing is left to take later."""
    sequence = llm.submit(llm.request([1, 2, 3], SamplingParams(max_tokens=1000)))
    while not sequence.output:
        llm.step()
    assert sequence.slot is None or sequence.slot.touched >= 1003
    sequence.cancel()
    llm.step()
