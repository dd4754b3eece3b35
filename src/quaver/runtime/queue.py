"""Batches for a runner, several under way at once: what counts is how many are done in a second, not how soon one is."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore
from types import TracebackType

from quaver.checking import check, or_none, whole
from quaver.errors import ConfigError, StageError
from quaver.runtime.pool import at_once
from quaver.runtime.runner import Array, Runner

Output = Array | tuple[Array, ...]


class Queue:
    """Runs batches in ``streams``, each with the runner's threads; without it, as many as the processor has cores for.

    A batch gives what ``run(batch)`` gives, bit for bit, and may not be written to till it does. While a batch waits for
    each stream, `submit` waits, too: who reads images is never far ahead of who runs them.

    >>> with Queue(run) as queue:                                   # doctest: +SKIP
    ...     for logits in queue.map(batches):
    ...         print(logits.argmax(1))
    """

    def __init__(self, run: Runner, streams: int | None = None) -> None:
        check("runtime.Queue", {"streams": streams}, {"streams": or_none(whole(1))})
        if run.in_turns and streams not in (None, 1):
            raise ConfigError(
                f"runtime.Queue: streams={streams}: {run.engine} runs one batch at a time in a process. Leave streams out, "
                "or start a process for each."
            )
        self.run = run
        self.streams = streams or (1 if run.in_turns else at_once(run.threads))
        self._room = BoundedSemaphore(2 * self.streams)
        self._pool = ThreadPoolExecutor(self.streams, thread_name_prefix="quaver.runtime.Queue")
        self._is_closed = False

    def submit(self, *batch: Array) -> Future[Output]:
        """The future of a batch; what goes wrong with it is raised by ``result()``."""
        if self._is_closed:
            raise StageError("runtime.Queue: it is closed. Make another for further batches.")
        self._room.acquire()
        try:
            future = self._pool.submit(self.run, *batch)
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        return future

    def map(self, batches: Iterable[Array | tuple[Array, ...]]) -> Iterator[Output]:
        """The output of each batch, in order; a batch of several inputs is a tuple of them."""
        under_way: deque[Future[Output]] = deque()
        try:
            for batch in batches:
                if len(under_way) == 2 * self.streams:
                    yield under_way.popleft().result()
                under_way.append(self.submit(*(batch if isinstance(batch, tuple) else (batch,))))
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:  # nobody waits for these
                future.cancel()

    def close(self, *, cancel: bool = False) -> None:
        """Wait for all that is under way; with ``cancel``, batches that no stream has begun are not run."""
        self._is_closed = True
        self._pool.shutdown(cancel_futures=cancel)

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(cancel=error is not None)
