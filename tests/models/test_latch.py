"""Many threads may read the weights, and one may write when nobody reads."""

from __future__ import annotations

import copy
import threading
import time

import torch

from interplay.models.latch import Latch, latch_of


def test_no_reader_sees_a_half_written_value() -> None:
    """Two readers and two writers on a pair of numbers that must always be equal."""
    latch, pair, wrong = Latch(), [0, 0], []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            with latch.reading():
                first = pair[0]
                time.sleep(0)
                if first != pair[1]:
                    wrong.append(tuple(pair))

    def write(times: int) -> None:
        for _ in range(times):
            with latch.writing():
                pair[0] += 1
                time.sleep(0)
                pair[1] += 1

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(200,)) for _ in range(2)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join(60)
    stop.set()
    for thread in readers:
        thread.join(60)
    assert pair == [400, 400] and wrong == []


def test_a_writer_that_waits_goes_before_new_readers() -> None:
    """Readers that come one after another cannot block a writer forever."""
    latch, order = Latch(), []
    reading, wrote = threading.Event(), threading.Event()

    def write() -> None:
        with latch.writing():
            order.append("write")
        wrote.set()

    def late() -> None:
        with latch.reading():
            order.append("late reader")

    with latch.reading():
        writer = threading.Thread(target=write)
        writer.start()
        while latch._writer is None:
            time.sleep(0.001)
        reader = threading.Thread(target=late)
        reader.start()
        reading.wait(0.05)
        assert order == []
    writer.join(30)
    reader.join(30)
    assert order == ["write", "late reader"]


def test_a_writer_may_read_and_write_inside() -> None:
    latch = Latch()
    with latch.writing(), latch.reading(), latch.writing():
        assert latch._depth == 2
    with latch.reading():
        assert latch._writer is None


def test_a_model_has_one_latch_and_its_copy_another() -> None:
    model = torch.nn.Linear(2, 2)
    assert latch_of(model) is latch_of(model)
    assert latch_of(copy.deepcopy(model)) is not latch_of(model)
