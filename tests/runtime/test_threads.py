"""One runner, many threads: everybody gets the answer to what they asked."""

import gc
import os
import signal
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread

import numpy as np
import pytest
import torch
from torch import nn

import quaver
from limits import AN_HOUR
from needs import need_executorch, need_litert
from quaver.errors import EngineError, InputError
from quaver.runtime.pool import ObjectPool, at_once

pytestmark = pytest.mark.slow

THREADS = 8
SIZES = (1, 3, 1, 2, 5, 1, 4, 2)


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    qat = quaver.quant_aware(net, example_inputs=(torch.zeros(2, 3, 16, 16),))
    qat.train()(torch.randn(8, 3, 16, 16))
    return quaver.convert(qat.eval())


@pytest.fixture(scope="module", params=["openvino", "onnx", "litert", "executorch"])
def artefact(request, program, tmp_path_factory):
    if request.param == "litert":
        need_litert()
    if request.param != "executorch":
        return quaver.export(program, tmp_path_factory.mktemp(request.param), target=request.param)
    need_executorch()
    from mobiles import mobile_program
    from quaver.engines.executorch.writer import serialized

    path = tmp_path_factory.mktemp("mobile") / "model.pte"
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 5))
    path.write_bytes(serialized(mobile_program(net, (8, 3, 16, 16))))
    return path


def batches(sizes=SIZES):
    generator = np.random.default_rng(0)
    return [generator.standard_normal((size, 3, 16, 16)).astype(np.float32) for size in sizes]


def together(work, threads=THREADS):
    """``work(k)`` in so many threads, all of which begin at once; what each gave."""
    start = Barrier(threads)

    def begin(k):
        start.wait(AN_HOUR)
        return work(k)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(1,) * THREADS, SIZES], ids=["one shape", "many shapes"])
def test_every_thread_gets_the_answers_to_its_own_questions(artefact, sizes):
    asked, alone = batches(sizes), quaver.runtime.load(artefact)
    expected = [alone(batch) for batch in asked]
    run = quaver.runtime.load(artefact)  # whose first batch comes from all threads at once

    answers = together(lambda k: [run(asked[k]) for _ in range(60)])

    wrong = sum(not np.array_equal(given, expected[k]) for k, all_given in enumerate(answers) for given in all_given)
    assert wrong == 0


@pytest.mark.slow
def test_an_answer_is_nobody_elses_memory(artefact):
    run, (one, other) = quaver.runtime.load(artefact), batches((1, 1))

    given = run(one)
    given[:] = 0  # and may be written to

    assert not np.array_equal(run(one), given)
    assert not np.shares_memory(run(one), run(one))
    assert not np.shares_memory(run(other), other)


def test_one_threads_error_is_its_own(artefact):
    run, (good,) = quaver.runtime.load(artefact), batches((2,))
    bad = [good[:, :2], good.astype(object), good[None], np.full(3, "image")]
    expected = run(good)

    def work(k):
        for turn in range(20):
            if k % 2:
                with pytest.raises(InputError):
                    run(bad[turn % len(bad)])
            elif not np.array_equal(run(good), expected):
                return "wrong"
        return "right"

    assert set(together(work)) == {"right"}


def test_runners_with_other_numbers_of_threads_run_at_once(artefact):
    """ExecuTorch has one pool of threads for all: it crashed when one was replaced under a method that ran."""
    (batch,) = batches((2,))
    runs = [quaver.runtime.load(artefact, threads=1 + k % 2) for k in range(4)]
    expected = runs[0](batch)

    answers = together(lambda k: [runs[k](batch) for _ in range(10)], len(runs))

    assert all(np.array_equal(given, expected) for all_given in answers for given in all_given)


def test_a_runner_goes_when_nobody_holds_it(artefact):
    run, (batch,) = quaver.runtime.load(artefact), batches((1,))
    run(batch)
    seen = weakref.ref(run)

    gc.disable()
    try:
        del run
        assert seen() is None
    finally:
        gc.enable()


LOADED_BY_THREADS = """
import os, signal, sys
from threading import Barrier, Thread
import numpy as np
import quaver

start, batch, runs, answers = Barrier(8), np.ones((1, 3, 16, 16), np.float32), [], []

def work():
    start.wait()
    for _ in range(3):
        runs.append(quaver.runtime.load(sys.argv[1]))
        answers.append(runs[-1](batch).tobytes())

threads = [Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(answers), len(set(answers)))
sys.stdout.flush()
if hasattr(os, "fork"):
    child = os.fork()
    if not child:
        signal.alarm(int(sys.argv[2]))
        os._exit(0 if runs[-1](batch).tobytes() == answers[-1] else 1)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.slow
def test_the_first_runners_of_a_process_may_come_from_many_threads_and_run_on_in_a_fork(artefact):
    command = [sys.executable, "-c", LOADED_BY_THREADS, str(artefact), str(AN_HOUR)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=AN_HOUR)

    assert (done.returncode, done.stdout.split()) == (0, ["24", "1"]), done.stderr[-2000:]


class Thing:
    """What a pool lends."""


def test_who_takes_alone_gets_the_same_again():
    pool = ObjectPool(Thing, most=3)
    first = pool.take()
    pool.give(first)

    assert pool.take() is first


def test_as_many_are_made_as_are_taken_at_once_and_no_more():
    pool = ObjectPool(Thing, most=2)
    one, other = pool.take(), pool.take()
    got = []
    waiting = Thread(target=lambda: got.append(pool.take()))
    waiting.start()
    waiting.join(0.05)

    assert one is not other
    assert got == []
    pool.give(other)
    waiting.join(AN_HOUR)
    assert got == [other]


def test_while_one_is_made_others_take_what_comes_back():
    begun, may_end, made = Event(), Event(), [Thing(), Thing()]

    def make():
        if len(made) == 1:
            begun.set()
            may_end.wait(AN_HOUR)
        return made.pop()

    pool, got = ObjectPool(make, most=2), []
    first = pool.take()
    maker = Thread(target=lambda: got.append(pool.take()))
    maker.start()
    begun.wait(AN_HOUR)
    pool.give(first)

    assert pool.take() is first
    may_end.set()
    maker.join(AN_HOUR)
    assert len(got) == 1


def test_everybody_hears_when_none_can_be_made_and_nobody_waits_for_ever():
    def make():
        raise EngineError("out of memory")

    pool = ObjectPool(make, most=2)

    def work(_):
        with pytest.raises(EngineError, match="out of memory"):
            pool.take()
        return "heard"

    assert set(together(work)) == {"heard"}


def test_what_a_thread_took_and_lost_is_made_again():
    pool = ObjectPool(Thing, most=1)
    pool.take()  # and Ctrl-C came before it was given back

    assert isinstance(pool.take(), Thing)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # Python 3.12 and later
def test_after_a_fork_nobody_waits_for_threads_that_are_not_there():
    pool = ObjectPool(Thing, most=1)
    taken = pool.take()  # by a thread that the child does not have

    with pool.lock:
        child = os.fork()
        if not child:
            signal.alarm(AN_HOUR)
            os._exit(0 if pool.take() is not taken else 1)

    assert os.waitpid(child, 0)[1] == 0


def test_a_processor_has_room_for_at_least_one_call():
    assert at_once(10**6) == 1
    assert at_once(1) >= 1
