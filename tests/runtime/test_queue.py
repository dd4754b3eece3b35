"""A queue runs several batches at once, and gives what the runner gives, in order."""

from threading import Event

import numpy as np
import pytest
import torch
from torch import nn

import quaver
from limits import AN_HOUR
from needs import need_litert
from quaver.errors import ConfigError, InputError, StageError
from quaver.runtime import Input, Queue, Runner


class Doubling(Runner):
    """Twice the input, when it is let."""

    engine = "doubling"
    inputs = [Input("x", (None,), np.dtype(np.float32))]

    def __init__(self):
        self.may_end, self.has_begun = Event(), Event()
        self.began = []

    def infer(self, batch):
        self.began.append(int(batch[0][0]))
        self.has_begun.set()
        assert self.may_end.wait(AN_HOUR)
        if batch[0][0] < 0:
            raise InputError("below zero")
        return [2 * batch[0]]


def numbers(count):
    return [np.full(1, number, np.float32) for number in range(count)]


@pytest.fixture
def run():
    run = Doubling()
    yield run
    run.may_end.set()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["openvino", "onnx", "litert"])
def test_a_queue_gives_the_bits_of_the_runner_in_order(target, tmp_path):
    if target == "litert":
        need_litert()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 4))
    qat = quaver.quant_aware(net, example_inputs=(torch.zeros(2, 3, 8, 8),)).train()
    qat(torch.randn(4, 3, 8, 8))
    run = quaver.runtime.load(quaver.export(quaver.convert(qat), tmp_path, target=target))
    batches = [torch.randn(1 + number % 3, 3, 8, 8).numpy() for number in range(24)]
    expected = [run(batch) for batch in batches]

    with Queue(run, streams=None if run.in_turns else 3) as queue:
        outputs = list(queue.map(iter(batches)))

    assert len(outputs) == len(expected)
    assert all(np.array_equal(given, wanted) for given, wanted in zip(outputs, expected, strict=True))


def test_streams_run_at_once_and_who_submits_waits_when_a_batch_waits_for_each(run):
    queue = Queue(run, streams=2)
    futures = [queue.submit(number) for number in numbers(4)]

    assert not queue._room.acquire(blocking=False)  # the fifth would wait
    assert not any(future.done() for future in futures)
    run.may_end.set()
    assert [float(future.result(AN_HOUR)[0]) for future in futures] == [0, 2, 4, 6]
    queue.submit(*numbers(1)).result(AN_HOUR)
    queue.close()


def test_reading_is_never_far_ahead_of_running(run):
    run.may_end.set()
    read = []

    def batches():
        for number in numbers(20):
            read.append(number)
            yield number

    with Queue(run, streams=1) as queue:
        outputs = queue.map(batches())
        next(outputs)
        assert len(read) == 3
        assert len(list(outputs)) == 19


def test_an_error_is_raised_where_the_result_is_asked_for_and_the_queue_goes_on(run):
    run.may_end.set()

    with Queue(run, streams=1) as queue:
        wrong, right = queue.submit(np.full(1, -1, np.float32)), queue.submit(*numbers(1))
        with pytest.raises(InputError, match="below zero"):
            wrong.result(AN_HOUR)
        with pytest.raises(InputError, match="takes float32, not <U1"):
            queue.submit(np.array(["a"])).result(AN_HOUR)
        assert right.result(AN_HOUR) == 0


def test_leaving_by_an_error_runs_nothing_that_had_not_begun(run):
    with pytest.raises(KeyboardInterrupt), Queue(run, streams=1) as queue:  # noqa: PT012
        begun, waiting = (queue.submit(number) for number in numbers(2))
        assert run.has_begun.wait(AN_HOUR)
        waiting.add_done_callback(lambda _: run.may_end.set())
        raise KeyboardInterrupt

    assert begun.done()
    assert waiting.cancelled()
    assert run.began == [0]
    with pytest.raises(StageError, match="it is closed"):
        queue.submit(*numbers(1))


def test_a_result_that_nobody_takes_any_more_is_not_computed(run):
    run.may_end.set()
    queue = Queue(run, streams=1)
    outputs = queue.map(numbers(100))
    next(outputs)

    outputs.close()
    queue.close()

    assert len(run.began) <= 3


def test_an_engine_that_runs_in_turns_has_one_stream(run):
    run.in_turns = True

    with pytest.raises(ConfigError, match="streams=2: doubling runs one batch at a time"):
        Queue(run, streams=2)
    assert Queue(run).streams == 1
    with pytest.raises(ConfigError, match="streams"):
        Queue(run, streams=0)
