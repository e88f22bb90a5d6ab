# SPDX-License-Identifier: GPL-2.0-or-later
"""Threads, a queue between them, and much small garbage. python_threads.py STEPS PROGRESS"""

import queue
import sys
import threading

from common import Progress, mix


def main(steps, progress):
    progress = Progress(progress)
    work, done = queue.Queue(4), queue.Queue()

    def worker(number):
        state = bytes([number])
        garbage = {}
        while (item := work.get()) is not None:
            state = mix(state, str(item).encode())
            garbage[item % 100] = [state] * 50
        done.put((number, state.hex()))

    threads = [threading.Thread(target=worker, args=(number,)) for number in range(4)]
    state = b""
    alone = queue.Queue()
    chain = threading.Thread(target=lambda: [alone.put(i * i) for i in range(steps)])
    for thread in (*threads[:1], chain):  # one worker: which of several takes an item is chance
        thread.start()
    for i in range(steps):
        work.put(i)
        state = mix(state, str(alone.get()).encode())
        progress.step()
    work.put(None)
    threads[0].join()
    chain.join()
    print(done.get(), state.hex())


main(int(sys.argv[1]), sys.argv[2])
