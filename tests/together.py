"""Functions that several threads run at the same time, while the interpreter goes from one to another as often as it
can."""

import sys
import threading


def in_threads(work, n):
    """work(k) in the k-th of n threads, which begin together; what one raises is a failure."""
    start, failures = threading.Barrier(n), []

    def run(k):
        start.wait()
        try:
            work(k)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(n)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert failures == []
