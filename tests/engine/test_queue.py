"""Who runs when: the queue, whose prefill goes on, and how often those who decode get a token."""

import random

import pytest

from mindnano import LLM, SamplingParams
from mindnano.checkpoint import tiny
from mindnano.engine.queue import FairQueue
from mindnano.engine.scheduler import GAP, Pace
from mindnano.engine.sequence import Phase, Sequence
from mindnano.engine.turns import SHORT, Turns

GREEDY = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)


def sequence(client="", tokens=1):
    return Sequence([1] * tokens, GREEDY, None, None, frozenset(), client=client)


class TestFairQueue:
    def test_clients_take_turns(self):
        queue = FairQueue()
        mine = [sequence("a") for _ in range(3)]
        for one in mine:
            queue.push(one)
        other = sequence("b")
        queue.push(other)
        assert [queue.pop([]) for _ in range(4)] == [mine[0], other, mine[1], mine[2]]
        with pytest.raises(IndexError):
            queue.pop([])

    def test_who_has_fewer_running_goes_first(self):
        queue = FairQueue()
        busy, idle = sequence("busy"), sequence("idle")
        queue.push(busy)
        queue.push(idle)
        assert queue.pop([sequence("busy")]) is idle
        assert len(queue) == 1 and list(queue) == [busy]

    def test_leaving(self):
        queue = FairQueue()
        one, two = sequence("a"), sequence("a")
        queue.push(one)
        queue.push(two)
        queue.remove(one)
        assert queue.pop([]) is two and not queue

    def test_nobody_waits_behind_a_greedy_client(self):
        queue = FairQueue()
        for _ in range(5):
            queue.push(sequence("greedy"))
        patient = sequence("patient")
        queue.push(patient)
        assert queue.pop([sequence("greedy")]) is patient


class TestTurns:
    def left(self, one):
        return len(one.prompt)

    def test_the_shortest_goes_first_but_the_oldest_every_second_block(self):
        turns = Turns(self.left)
        long, middle, short = sequence(tokens=9000), sequence(tokens=5000), sequence(tokens=2000)
        waiting = [long, middle, short]
        assert turns.choose(waiting, True) is short
        assert turns.choose(waiting, True) is long
        assert turns.choose(waiting, True) is short

    def test_a_block_is_not_left_but_for_a_short_guest(self):
        turns = Turns(self.left)
        host = sequence(tokens=9000)
        assert turns.choose([host], True) is host
        host.block = 4096
        middle, guest = sequence(tokens=SHORT + 1), sequence(tokens=SHORT)
        assert turns.choose([host, middle], True) is host
        assert turns.choose([host, middle, guest], False) is host
        assert turns.choose([host, middle, guest], True) is guest
        turns.spent(guest, 0.5)
        assert turns.choose([host, middle, guest], False) is guest  # until it is done
        another = sequence(tokens=1)
        assert turns.choose([host, middle, another], True) is host  # the host gets as much time first
        turns.spent(host, 0.4)
        assert turns.choose([host, middle, another], True) is host
        turns.spent(host, 0.1)
        assert turns.choose([host, middle, another], True) is another

    def test_one_that_has_gone_is_forgotten(self):
        turns = Turns(self.left)
        host, guest = sequence(tokens=9000), sequence(tokens=5)
        turns.choose([host], True)
        host.block = 4096
        assert turns.choose([host, guest], True) is guest
        assert turns.choose([host], True) is host
        assert turns.choose([guest], True) is guest and turns.guest is None
        assert turns.choose([], True) is None


def test_the_pace_leaves_a_prefill_what_the_gap_allows():
    pace = Pace()
    assert pace.due  # nobody has decoded yet
    pace.piece(0.1)
    pace.decoded(0.2)
    assert pace.span == pytest.approx(GAP - 0.3)
    pace.decoded(0.01)
    assert 0 < pace.span < GAP
    for _ in range(20):
        pace.decoded(GAP)
    assert pace.span <= 0 and pace.due  # decoding alone takes the gap
    for _ in range(40):
        pace.decoded(0.01)
    assert pace.span == pytest.approx(0.02, rel=0.01)  # twice a fast decode, not all the gap


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "model.mn"
    tiny.build(path, seed=3)
    with LLM(path, context=4096, slots=4, prefill_block=1024, cache_budget=0) as engine:
        yield engine


def prompts(count, generator):
    return [
        [generator.randrange(256) for _ in range(generator.choice((5, 300, 513, 1300)))] for _ in range(count)
    ]


def test_prompts_and_answers_that_overlap_are_what_each_is_alone(llm):
    """Guests inside a host's block, decodes between pieces, blocks in turn, some cancelled: no answer changes."""
    generator = random.Random(7)
    asked = prompts(7, generator)
    alone = [llm.generate(prompt, GREEDY).token_ids for prompt in asked]
    for round_ in range(2):
        sequences, waiting = [], list(range(len(asked)))
        generator.shuffle(waiting)
        guests = 0
        while waiting or not all(one.finished for _, one in sequences):
            if waiting and generator.random() < 0.2:
                at = waiting.pop()
                sequences.append((at, llm.submit(llm.request(asked[at], GREEDY, client=str(at % 3)))))
                if generator.random() < 0.2:
                    at = generator.randrange(len(asked))
                    llm.submit(llm.request(asked[at], GREEDY)).cancel()
            if sequences and generator.random() < 0.02:
                extra = llm.submit(llm.request(asked[generator.randrange(len(asked))], GREEDY))
                llm.step()
                extra.cancel()
            llm.step()
            guests += llm._scheduler._turns.guest is not None
        while not llm.idle:
            llm.step()
        for at, one in sequences:
            assert [token.token for token in one.output] == alone[at], (round_, at)
        assert guests  # that it happened at all
    assert llm.free_slots == llm.slots


def test_a_short_prompt_is_answered_inside_a_long_one(llm):
    long = llm.submit(llm.request([1 + i % 200 for i in range(4000)], GREEDY, client="a"))
    while long.block == 0:
        llm.step()
    short = llm.submit(llm.request([5] * 20, GREEDY, client="b"))
    while not short.finished:
        llm.step()
    assert long.phase is Phase.PREFILL
    while not llm.idle:
        llm.step()
    assert long.finish_reason == "length"


def test_progress_grows_to_the_prompts_length(llm):
    one = llm.submit(llm.request([1 + i % 200 for i in range(3000)], GREEDY))
    assert llm.progress(one) is None
    told = []
    while one.phase is not Phase.DECODE and not one.finished:
        llm.step()
        progress = llm.progress(one)
        if progress is not None:
            told.append(progress)
    done = [progress.tokens_done for progress in told]
    assert done == sorted(done) and done[0] == 0 and 2000 < done[-1] <= 3000
    assert all(progress.tokens_total == 3000 for progress in told)
    assert told[-1].seconds_left is not None and told[-1].seconds_left >= 0
    one.cancel()
    while not llm.idle:
        llm.step()


def test_a_prompt_that_fails_ends_alone(llm, monkeypatch):
    other = llm.submit(llm.request([7] * 50, SamplingParams(max_tokens=60, temperature=0, ignore_eos=True)))
    while not other.output:
        llm.step()

    def broken(*_, **__):
        raise RuntimeError("broken")

    prefill = llm._model.prefill
    monkeypatch.setattr(llm._model, "prefill", broken)
    failing = llm.submit(llm.request([9] * 50, GREEDY))
    while not failing.finished:
        llm.step()
    monkeypatch.setattr(llm._model, "prefill", prefill)
    assert isinstance(failing.error, RuntimeError) and not other.finished
    while not llm.idle:
        llm.step()
    assert other.finish_reason == "length" and llm.free_slots == llm.slots
