# SPDX-License-Identifier: GPL-2.0-or-later
"""multiprocessing as joblib, Dask and PyTorch's data loaders use it: locks, semaphores and queues of processes that were not forked.
Each is a file in /dev/shm that sem_open(3) has given its name after it was opened under another, which is gone.
semaphores.py STEPS PROGRESS"""

import multiprocessing
import os
import sys

from common import Progress

WORKERS = 2
SLOTS = 3


def work(numbers, results, lock, slots, total, there):
    there.release()
    while (number := numbers.get()) is not None:
        with slots, lock:
            total.value += number
        results.put(number * number)


def free(semaphore):
    """How many of its slots."""
    count = 0
    while semaphore.acquire(block=False):
        count += 1
    for _ in range(count):
        semaphore.release()
    return count


class Team:
    def __init__(self, method):
        context = multiprocessing.get_context(method)
        self.method, self.squares = method, 0
        self.numbers, self.results, self.total = context.Queue(), context.Queue(), context.Value("l", 0)
        self.lock, there = context.Lock(), context.Semaphore(0)
        self.slots, self.held = context.Semaphore(SLOTS), context.Semaphore(SLOTS)
        self.held.acquire()
        self.workers = [context.Process(target=work, args=(self.numbers, self.results, self.lock, self.slots, self.total, there))
                        for _ in range(WORKERS)]
        for worker in self.workers:
            worker.start()
        for _ in self.workers:
            there.acquire()

    def step(self, number):
        self.numbers.put(number)
        self.squares += self.results.get()

    def end(self):
        for _ in self.workers:
            self.numbers.put(None)
        for worker in self.workers:
            worker.join()
        print(self.method, self.squares, self.total.value, free(self.slots), free(self.held), [each.exitcode for each in self.workers])


def main(steps, progress):
    progress = Progress(progress)
    teams = [Team(method) for method in ("spawn", "forkserver")]
    for number in range(steps):
        teams[number % len(teams)].step(number)
        progress.step()
    for team in teams:
        team.end()
    print([name for name in os.listdir("/dev/shm") if not name.startswith("sem.mp-")])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
