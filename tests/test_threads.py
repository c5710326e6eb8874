"""Programs in several threads: the same bits for any number, and a pool that survives what processes do.

On a machine with one CPU no worker starts, and the tests here say the same of one thread.
"""

import contextlib
import os
import sys
import time

import numpy as np
import pytest
from thread_scripts import run

import weft
from weft.compiler.emit.pool_memory import ASLEEP, READY
from weft.runtime.code import threads, workers

COUNTS = (1, 2, 3, 4)
HAS_WORKERS = sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


@pytest.fixture(autouse=True)
def restore():
    before = weft.get_num_threads()
    yield
    weft.set_num_threads(before)


def jobs():
    """How many programs teams have run so far."""
    return threads._pool().read("generation") >> 16


def slots(*fields):
    """What the workers that were started have in these fields."""
    pool = threads._pool()
    columns = [workers._word_of_slot(field) for field in fields]
    return pool.slots[: pool.read("alive"), columns].tolist() if HAS_WORKERS and pool.is_prepared else []


@contextlib.contextmanager
def tireless_workers():
    """Workers that look for work for ever, and a function that waits until all that were started do so, on other CPUs
    than the caller's. After it a program that asks for a team gets one, however busy the machine is."""
    pool, cpus = threads._pool(), os.sched_getaffinity(0) if HAS_WORKERS else set()

    def meet():
        while not all(thread and state == READY for thread, state in slots("thread", "state")):
            time.sleep(0.0001)
        if slots("thread"):
            own = min(cpus)
            # A worker that is where the caller was last seen moves itself, to where the process may run.
            pool.write("caller_cpu", own)
            for (thread,) in slots("thread"):
                os.sched_setaffinity(thread, cpus - {own})
            os.sched_setaffinity(0, {own})
            while any(cpu == own for (cpu,) in slots("cpu")):
                time.sleep(0.0001)

    pool.write("spin_ns", 1 << 60)
    try:
        yield meet
    finally:
        pool.write("spin_ns", workers._SPIN_NS)
        if HAS_WORKERS:
            os.sched_setaffinity(0, cpus)


def same_for_all_counts(function, *arguments, shares=True):
    """Run a function compiled, with 1 to 4 threads, and eagerly: all results must have the same bits."""
    expected = [np.array(x.numpy()) for x in function(*arguments)]
    for n in COUNTS:
        weft.set_num_threads(n)
        with tireless_workers() as meet:
            compiled = weft.compile(function)
            compiled(*arguments)
            meet()
            before = jobs()
            for _ in range(5):
                for got, wanted in zip(compiled(*arguments), expected):
                    assert got.numpy().tobytes() == wanted.tobytes(), f"{n} threads"
        assert (jobs() > before) == (shares and n > 1 and HAS_WORKERS), f"{n} threads"


def tensors(*shapes, dtype=weft.float32):
    weft.manual_seed(0)
    return [weft.randn(*shape, dtype=dtype) for shape in shapes]


# --- the same bits ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [weft.float32, weft.float64])
@pytest.mark.parametrize(
    "m, k, n",
    [(64, 64, 128), (65, 130, 97), (7, 300, 333), (1, 700, 801), (801, 700, 1), (531, 41, 70), (130, 2050, 10)],
)
def test_products(m, k, n, dtype):
    a, b, c = tensors((m, k), (k, n), (n, k), dtype=dtype)
    same_for_all_counts(lambda a, b, c: (a @ b, a @ c.t(), b.t() @ a.t()), a, b, c)


@pytest.mark.parametrize("batch", [(5,), (3, 4), (1, 7)])
def test_batched_products(batch):
    a, b, c = tensors((*batch, 40, 70), (*batch, 70, 50), (70, 50))
    same_for_all_counts(lambda a, b, c: (a @ b, a @ c, b.transpose(-1, -2) @ a.transpose(-1, -2)), a, b, c)


def test_product_of_few_rows_is_cut_in_columns_and_a_weights_gradient_in_rows():
    x, w = tensors((16, 512), (512, 512))
    same_for_all_counts(lambda x, w: (x @ w, (x @ w).t() @ x), x, w)


@pytest.mark.parametrize("n", [100_000, 65_536, 77_777])
def test_elementwise(n):
    (x,) = tensors((n,))
    same_for_all_counts(lambda x: (weft.tanh(x) * x.exp() + 1, x > 0, (x * 3).to(weft.float64)), x)


@pytest.mark.parametrize("shape", [(300, 1000), (3000, 65), (40, 3000)])
def test_rows(shape):
    (x,) = tensors(shape)
    same_for_all_counts(lambda x: (weft.softmax(x, 1), x.sum(1), x.var(1), x.amax(1), weft.log_softmax(x, 1)), x)


@pytest.mark.parametrize("shape", [(300, 1000), (3000, 130), (300, 8192)])
def test_column_sums(shape):
    (x,) = tensors(shape)
    same_for_all_counts(lambda x: ((x.exp() * x).sum(0), (x.tanh() + 1).amax(0)), x)


@pytest.mark.parametrize("shape", [(5, 20_000), (2000, 16)])
def test_sums_of_very_long_or_very_few_columns(shape):
    (x,) = tensors(shape)
    same_for_all_counts(lambda x: ((x.exp() * x).sum(0), (x.tanh() + 1).amax(0)), x)


def test_transposed_operands():
    x, y = tensors((320, 416), (416, 320))
    same_for_all_counts(lambda x, y: (x + y.t().exp(), (x.t() * y).tanh()), x, y)


def test_total_sums():
    (x,) = tensors((300_000,))
    same_for_all_counts(lambda x: (x.sum(), (x * x).mean()), x)


def test_small_programs_are_not_shared():
    x, y = tensors((30, 30), (30, 30))
    same_for_all_counts(lambda x, y: (x @ y + 1, x.exp()), x, y, shares=False)


def trained(n_threads):
    """State after a few steps of a network with normalisation, a scatter, in-place updates and a failing check."""
    weft.set_num_threads(n_threads)
    weft.manual_seed(3)
    nn = weft.nn
    model = nn.Sequential(
        nn.Embedding(50, 96), nn.Flatten(), nn.Linear(96 * 4, 200), nn.LayerNorm(200), nn.GELU(), nn.Linear(200, 64),
        nn.BatchNorm1d(64), nn.Dropout(0.2), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = weft.optim.Adam(model.parameters(), lr=0.01)

    @weft.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = weft.randint(0, 50, (100, 4)), weft.randint(0, 10, (100,))
    with tireless_workers() as meet:
        losses = [step(x, y).item()]
        meet()
        losses += [step(x, y).item() for _ in range(3)]
        with pytest.raises(IndexError):
            step(x + 50, y)
    return losses, [v.numpy().tobytes() for v in model.state_dict().values()]


def test_training_step():
    expected = trained(1)
    before = jobs()
    for n in COUNTS[1:]:
        assert trained(n) == expected, f"{n} threads"
    assert (jobs() > before) == HAS_WORKERS


def test_a_bias_replaced_while_other_rows_still_read_it():
    """The bias is read for every row as a column of numbers, and updated from sums over the rows: no thread may
    write its part while another reads."""

    def update(w, bias, x):
        w, bias = w.clone(), bias.clone()
        y = (x @ w + bias[:, None]).tanh()
        bias -= y.sum(0)
        return y, bias

    same_for_all_counts(update, *tensors((128, 128), (128,), (128, 128)))


# --- the interface ----------------------------------------------------------------------------------------------------
def test_numbers_of_threads():
    weft.set_num_threads(3)
    assert weft.get_num_threads() == (3 if sys.platform == "linux" else 1)
    with pytest.raises(RuntimeError, match="set_num_threads: expects a positive integer, got 0"):
        weft.set_num_threads(0)
    with pytest.raises(TypeError, match="set_num_threads: expects an int, got float"):
        weft.set_num_threads(2.0)
    assert weft.get_num_threads() == (3 if sys.platform == "linux" else 1)


def test_linear_algebra_has_the_same_bits_for_any_number():
    """It is NumPy's, which sums in another order on two threads than on one: `set_num_threads` says nothing to it."""
    numbers = np.random.default_rng(0).normal(size=(160, 160))
    before, found = weft.get_num_threads(), []
    try:
        for n in (1, 2):
            weft.set_num_threads(n)
            x = weft.tensor(numbers)
            results = weft.linalg.qr(x).R, weft.linalg.pinv(x), weft.linalg.eigvalsh(x + x.T), weft.matrix_exp(x / 160)
            found.append([result.numpy().tobytes() for result in results])
    finally:
        weft.set_num_threads(before)
    assert found[0] == found[1]


def test_environment_variable():
    assert run("print(weft.get_num_threads())", WEFT_NUM_THREADS="3") == "3\n"
    assert run("print(weft.get_num_threads())", WEFT_NUM_THREADS="") == f"{len(os.sched_getaffinity(0))}\n"
    with pytest.raises(AssertionError, match="WEFT_NUM_THREADS=many: must be a positive number"):
        run("print(weft.get_num_threads())", WEFT_NUM_THREADS="many")


def test_one_thread_starts_nothing():
    run(
        """
        before = os.listdir("/proc/self/task")
        weft.set_num_threads(1)
        check()
        assert workers() == 0 and os.listdir("/proc/self/task") == before
        """
    )


def test_one_thread_and_later_more():
    run(
        """
        check()
        assert workers() == 0
        weft.set_num_threads(3)
        check()
        assert (workers() > 0) == (len(os.sched_getaffinity(0)) > 1)
        """,
        WEFT_NUM_THREADS="1",
    )


def test_fork_and_spawn():
    run(
        """
        import multiprocessing
        check()
        n = workers()
        assert (n > 0) == (weft.get_num_threads() > 1)
        for k in range(5):
            child = os.fork()
            if child == 0:
                check()
                os._exit(7 if workers() == n else 8)
            check(3)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        child = multiprocessing.get_context("fork").Process(target=check)
        child.start(); child.join()
        assert child.exitcode == 0
        check()
        """
    )


def test_fork_while_other_threads_compute():
    run(
        """
        stop = False
        def work():
            while not stop:
                check(1)
        others = [threading.Thread(target=work) for _ in range(3)]
        for t in others: t.start()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                check(2)
                os._exit(threads._pool().read("stop"))
            assert os.waitpid(child, 0)[1] == 0
        stop = True
        for t in others: t.join()
        check()
        """
    )


def test_fork_while_another_thread_makes_the_pool():
    """What it registered for forks then was called after this one alone, and released a lock that nobody held."""
    run(
        """
        from weft.runtime.code import workers
        made = threading.Event()
        load = workers.translated.load
        def make_slowly(*args):
            made.set()
            time.sleep(0.3)
            return load(*args)
        workers.translated.load = make_slowly
        first = threading.Thread(target=check)
        first.start()
        made.wait()
        child = os.fork()
        if child == 0:
            check()
            os._exit(threads._pool().read("stop"))
        assert os.waitpid(child, 0)[1] == 0
        first.join()
        check()
        """
    )


FORK_WHILE_COMPILING = """
import signal
stop = False
def work():
    for k in range(1, 10**6):
        if stop:
            return
        weft.compile(lambda x: (x.exp() * k).tanh().sum(0))(x[:k % 90 + 1])
others = [threading.Thread(target=work, daemon=True) for _ in range(2)]
for t in others: t.start()
time.sleep(DELAY)
for _ in range(3):
    child = os.fork()
    if child == 0:
        signal.alarm(100)  # ends a child that waits for ever
        check(2)
        os._exit(threads._pool().read("stop"))
    assert os.waitpid(child, 0)[1] == 0
stop = True
for t in others: t.join()
check()
"""


@pytest.mark.parametrize("delay", [0, 0.3])
def test_fork_while_other_threads_compile(delay):
    """With nothing in the cache: at first the other threads import modules, later they are in LLVM most of the time."""
    run(FORK_WHILE_COMPILING.replace("DELAY", str(delay)), WEFT_CACHE="0")


def test_many_python_threads():
    run(
        """
        sys.setswitchinterval(1e-5)
        failed = []
        def work():
            try:
                check(150)
            except BaseException as error:
                failed.append(error)
        others = [threading.Thread(target=work) for _ in range(8)]
        for t in others: t.start()
        for t in others: t.join()
        assert not failed, failed
        """
    )


def test_several_python_threads_set_numbers():
    """While one waited for the workers to leave, the programs of another started new ones, for which it waited too: up
    to the time after which it gives up, which no machine is busy enough for here."""
    run(
        """
        from weft.runtime.code import workers
        workers._LEAVE_SECONDS = 100
        sys.setswitchinterval(1e-5)
        longest, failed = [], []
        def work(k):
            try:
                for i in range(40):
                    check(3)
                    start = time.perf_counter()
                    weft.set_num_threads(2 + (i + k) % 3)
                    longest.append(time.perf_counter() - start)
            except BaseException as error:
                failed.append(error)
        others = [threading.Thread(target=work, args=(k,)) for k in range(3)]
        for t in others: t.start()
        for t in others: t.join()
        assert not failed, failed
        assert max(longest) < 100, max(longest)
        pool = threads._pool()
        assert pool.read("stop") == 0 and pool.read("workers") == pool.n_workers
        """
    )


def test_signals_are_for_the_threads_of_the_process():
    """A worker would take a signal that all others block to wait for it, and the process would end."""
    run(
        """
        import signal
        check()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)
        assert signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        check()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
        """,
        OPENBLAS_NUM_THREADS="1",
    )


def test_up_and_down():
    run(
        """
        before = os.listdir("/proc/self/task")
        for k in range(120):
            weft.set_num_threads(k % 4 + 1)
            check(k % 3)
            if k % 10 == 0:
                time.sleep(0.003)
        weft.set_num_threads(1)
        assert os.listdir("/proc/self/task") == before
        """
    )


def test_one_cpu():
    """A process that may use one CPU has one thread, even if told otherwise; one confined later stops sharing."""
    run(
        """
        assert weft.get_num_threads() == 1
        weft.set_num_threads(4)
        check()
        assert workers() == 0
        """,
        before="import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n",
    )
    run(
        """
        from weft.runtime.code.workers import _word_of_slot
        check()
        pool = threads._pool()
        while any(pool.slots[:workers(), _word_of_slot("state")] != ASLEEP):
            time.sleep(0.001)
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), os.sched_getaffinity(0))
        before = pool.read("generation")
        check(300)
        assert pool.read("generation") == before
        """.replace("ASLEEP", str(ASLEEP))
    )
