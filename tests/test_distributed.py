"""weft.distributed: several processes, which mpiexec starts. The checks are in distributed_checks.py."""

import functools
import importlib
import os
import subprocess
import sys

import pytest
from distributed_parts import Checked, checks_of, mpiexec, needs_mpi, run_processes, run_text

import weft
from weft.runtime.distributed.long_waits import Call, Calls, LongWaits
from weft.runtime.distributed.waiting import has_completed

CHECKS = ["check_" + name for name in str.split("""
    ranks all_reduce_adds_in_a_fixed_order all_reduce_of_all_types_and_reductions halves_are_rounded_once
    broadcast_and_reduce gathering_and_scattering reduce_scatter_and_all_to_all
    what_does_not_fit_is_an_error several_tensors_together samplers_ask_the_group
    groups_are_asked_as_pytorch_writes_it async
    results_of_works batches_of_messages_and_groups_of_a_size messages objects groups groups_by_lists
    a_monitored_barrier derivatives
    derivatives_of_products_and_extremes compiled compiled_derivatives
""")]  # fmt: skip


@functools.cache
def checked(n_processes):
    return Checked("distributed_checks.py", n_processes)


@pytest.mark.parametrize("n_processes", [2, 4])
@pytest.mark.parametrize("name", CHECKS)
def test_collectives(name, n_processes):
    needs_mpi()
    checked(n_processes).assert_passed(name)


def test_a_large_message_is_not_moved_piece_by_piece_between_sleeps():
    """MPI moves a piece of a message each time it is asked. Asked once per look, 6 MB took a thousand sleeps."""

    class InPieces:
        n_left = 40

        def Test(self):
            self.n_left = max(0, self.n_left - 1)
            return self.n_left == 0

    assert has_completed(InPieces())
    still_out = InPieces()
    still_out.n_left = 10**6
    assert not has_completed(still_out) and still_out.n_left > 10**6 - 1000  # a look at what has not come is short


def test_all_checks_are_run():
    import distributed_checks

    assert [check.__name__ for check in checks_of(vars(distributed_checks))] == CHECKS


BEGIN = "import sys\nimport weft\nimport weft.distributed as dist\n"
BEGIN += "dist.init_process_group('mpi')\nrank = dist.get_rank()\n"

# What goes wrong on one rank; then what must be printed.
FAULTS = {
    "a rank raises": (
        "if rank == 1:\n    raise ValueError('no data')\ndist.all_reduce(weft.ones(3))\n",
        ["rank 1 of 2 has failed at ", "program.py:7: ValueError: no data", "all processes are ended"],
    ),
    "a rank runs another program": (
        "if rank == 1:\n    dist.broadcast(weft.ones(3), 0)\nelse:\n    dist.all_reduce(weft.ones(3))\n",
        [
            "the processes do not call the same as number 1 of their group: rank 0 at ",
            "program.py:9: all_reduce(sum) of float32 (3,); rank 1 at ",
            "program.py:7: broadcast(from 0) of float32 (3,). All ranks must call",
        ],
    ),
    "shapes differ": (
        "dist.barrier()\ndist.all_reduce(weft.ones(3 + rank))\n",
        ["as number 2 of their group", "all_reduce(sum) of float32 (3,); rank 1", "all_reduce(sum) of float32 (4,)"],
    ),
    "types differ": (
        "dist.all_reduce(weft.ones(3, dtype=weft.float64 if rank else weft.int64), async_op=True).wait()\n",
        ["rank 0 at ", "program.py:6: all_reduce(sum) of int64 (3,); rank 1", "of float64 (3,)"],
    ),
    "a rank ends": (
        "dist.barrier()\nif rank == 1:\n    sys.exit(0)\ndist.all_reduce(weft.ones(3))\n",
        ["all_reduce, number 2 of its group, waits on rank 0 at ", "program.py:9, but rank 1 has ended after number 1"],
    ),
    "nobody sends": (
        "if rank == 0:\n    dist.recv(weft.ones(3), 1)\n",
        ["recv waits on rank 0 at ", "program.py:7, but rank 1 has ended"],
    ),
    "another tensor is sent": (
        "if rank == 0:\n    dist.recv(weft.ones(3), 1)\nelse:\n    dist.send(weft.ones(4), 0)\n",
        ["recv: rank 1 sends tensor() of float32 (4,) at ", "rank 0 receives tensor() of float32 (3,) at "],
    ),
    "a rank does not come": (
        "from datetime import timedelta\nimport time\ndist.destroy_process_group()\n"
        "dist.init_process_group('mpi', timeout=timedelta(seconds=0.3))\n"
        "if rank == 1:\n    time.sleep(60)\ndist.barrier()\n",
        ["barrier, number 1 of its group, waits on rank 0", "not all other ranks have come to it within 0.3 s"],
    ),
    "nobody comes to what is waited for": (
        "from datetime import timedelta\nimport time\nif rank == 1:\n    time.sleep(60)\n"
        "work = dist.all_reduce(weft.ones(3), async_op=True)\nwork.wait(timeout=timedelta(seconds=0.3))\n",
        ["all_reduce, number 1 of its group, waits on rank 0", "not all other ranks have come to it within 0.3 s"],
    ),
    "nobody sends in time": (
        "from datetime import timedelta\nimport time\nif rank == 1:\n    time.sleep(60)\n"
        "dist.irecv(weft.ones(3), 1).wait(timedelta(seconds=0.3))\n",
        ["recv waits on rank 0 at ", "the other rank has not come to it within 0.3 s"],
    ),
    "unchecked, a rank runs another program": (
        "dist.set_debug_level(dist.DebugLevel.OFF)\ndist.barrier()\n"
        "if rank == 1:\n    dist.broadcast(weft.ones(3), 0)\nelse:\n    dist.all_reduce(weft.ones(3))\n",
        [
            "the processes do not call the same as number 2 of their group: this rank at ",
            "program.py:11: all_reduce(sum) of",
        ],
    ),
    # MPI may take what another collective has sent for its own; of so large a part nobody takes anything.
    "unchecked, a rank has ended that ran another program": (
        "dist.set_debug_level(dist.DebugLevel.OFF)\ndist.barrier()\n"
        "if rank == 1:\n    dist.all_reduce(weft.ones(10**6))\nelse:\n    dist.broadcast(weft.ones(3), 0)\n",
        [
            "all_reduce, number 2 of its group, waits on rank 1 at ",
            "; rank 0 at ",
            "program.py:11: broadcast(from 0) of",
        ],
    ),
    "a rank is killed": ("import os\nif rank == 1:\n    os.kill(os.getpid(), 9)\ndist.barrier()\n", []),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_ends_all_processes_and_is_named(fault, tmp_path):
    needs_mpi()
    program, words = FAULTS[fault]
    ended = run_text(tmp_path, 2, BEGIN + program)
    assert ended.returncode != 0
    for part in words:
        assert part in ended.stderr, ended.stderr


def test_what_ranks_that_wait_are_told_is_compared_when_they_come_to_it():
    class Group:
        calls = Calls()

    sent = []
    waits = LongWaits([Group], lambda rank, call: sent.append((rank, call)))
    barrier, reduction = Call(0, 3, "barrier", "a.py:1"), Call(0, 3, "all_reduce", "b.py:2")
    waits.hear(1, barrier)
    waits.compare()
    assert waits.heard and not sent and waits.different is None  # not there yet
    Group.calls.add(barrier._replace(line="b.py:1"))
    waits.compare()
    assert not waits.heard and not sent and waits.different is None
    waits.hear(1, reduction)
    waits.compare()
    waits.hear(2, reduction)
    waits.compare()
    assert sent == [(1, barrier._replace(line="b.py:1"))]  # said once
    assert "number 3 of their group: this rank at b.py:1: barrier; rank 2 at b.py:2: all_reduce" in waits.different
    for number in range(4, 100):
        Group.calls.add(Call(0, number, "barrier", "b.py:1"))
    waits.hear(1, reduction)
    waits.compare()
    assert not waits.heard  # forgotten


def test_a_rank_that_fails_before_there_is_a_group_ends_all(tmp_path):
    """mpiexec had not heard of it yet, and the others waited for it in MPI's initialisation for ever."""
    needs_mpi()
    program = "import weft.distributed as dist\nimport os\n"
    program += "if os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK')) == '1':\n"
    program += "    raise ValueError('no data')\ndist.init_process_group('mpi')\ndist.barrier()\n"
    ended = run_text(tmp_path, 2, program)
    assert ended.returncode != 0 and "ValueError: no data" in ended.stderr
    if "Hydra" in subprocess.run([mpiexec(), "--version"], capture_output=True, text=True).stdout:
        assert "rank 1 of 2 has failed at " in ended.stderr and "program.py:4: ValueError: no data" in ended.stderr


def test_what_a_rank_says_last_is_read_before_all_are_ended(monkeypatch):
    """MPI's Abort ends mpiexec's reading: half a traceback was all that was seen when it overtook the rest."""
    from threading import Timer

    from weft.runtime.distributed import endings

    pytest.importorskip("fcntl")
    # Who reads may come late on a busy machine: here nothing ends the waiting but that it has come.
    monkeypatch.setattr(endings, "_SECONDS_TO_BE_READ", float("inf"))
    reading, writing = os.pipe()
    reads = []
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w") as writer:
        writer.write("rank 1 of 2 has failed")
        writer.flush()
        Timer(0.3, lambda: (reads.append("begun"), reader.read(22))).start()
        endings.let_read(writer)
        assert reads == ["begun"]


def test_an_error_can_be_caught_and_the_group_is_not_used_again(tmp_path):
    needs_mpi()
    program = """
works = [dist.all_reduce(weft.ones(n), async_op=True) for n in (3 + rank, 2)]
for call in (works[0].wait, works[1].wait, dist.barrier):
    try:
        call()
    except dist.DistError as error:
        print(str(error).split(":")[0] + "|", flush=True)
"""
    ended = run_text(tmp_path, 2, BEGIN + program)
    assert ended.returncode == 0
    assert ended.stdout.count("the processes do not call the same as number 1 of their group|") >= 2
    assert ended.stdout.count("barrier|") == 2


@pytest.mark.parametrize("wait_all_ranks", [False, True])
def test_a_monitored_barrier_names_who_has_not_come(wait_all_ranks, tmp_path):
    """The other rank comes when rank 0 has given up."""
    needs_mpi()
    program = f"""
import os, time
from datetime import timedelta
dist.monitored_barrier()
has_failed = {str(tmp_path / "failed")!r}
while rank == 1 and not os.path.exists(has_failed):
    time.sleep(0.01)
try:
    dist.monitored_barrier(timeout=timedelta(seconds=[0.2, 250][rank]), wait_all_ranks={wait_all_ranks})
except dist.DistError as error:
    print(error, end="|\\n", flush=True)
    open(has_failed, "w").close()
try:
    dist.barrier()
except dist.DistError as error:
    print(str(error).split(":")[0], end="|\\n", flush=True)
"""
    ended = run_text(tmp_path, 2, BEGIN + program)
    assert ended.returncode == 0, ended.stderr
    who = "Ranks 1" if wait_all_ranks else "Rank 1"
    assert f"[Rank 0]: {who} failed to pass monitoredBarrier in 0.2 s|" in ended.stdout
    assert "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for rank 0" in ended.stdout
    assert ended.stdout.count("barrier|") == 2


def test_a_monitored_barrier_names_who_has_ended(tmp_path):
    needs_mpi()
    program = "if rank == 0:\n    dist.monitored_barrier()\n"
    ended = run_text(tmp_path, 2, BEGIN + program)
    assert ended.returncode != 0
    assert "[Rank 0]: Rank 1 failed to pass monitoredBarrier" in ended.stderr


def test_one_process_is_a_group_too(tmp_path):
    needs_mpi()
    file = tmp_path / "program.py"
    file.write_text(BEGIN + "x = weft.ones(3)\ndist.all_reduce(x)\nprint(x.tolist(), dist.get_world_size())\n")
    ended = subprocess.run([sys.executable, file], capture_output=True, text=True)
    assert ended.stdout == "[1.0, 1.0, 1.0] 1\n", ended.stderr


def test_other_backends_and_missing_groups_are_errors():
    dist = weft.distributed
    with pytest.raises(ValueError, match="backend 'gloo' is not there; weft has 'mpi': init_process_group"):
        dist.init_process_group("gloo")
    with pytest.raises(ValueError, match="init_method and store are not needed"):
        dist.init_process_group("mpi", init_method="tcp://localhost:23456")
    for call in (dist.get_rank, dist.get_world_size, dist.barrier, dist.destroy_process_group, dist.new_group):
        with pytest.raises(ValueError, match="Default process group has not been initialized, please make sure to"):
            call()
    assert not dist.is_initialized() and not dist.is_gloo_available() and not dist.is_nccl_available()
    with pytest.raises(TypeError, match="expected a DebugLevel such as DebugLevel.OFF, got 'OFF'"):
        dist.set_debug_level("OFF")


def test_what_other_programs_start_processes_with_is_refused_with_words():
    import weft.distributed as dist

    with pytest.raises(AttributeError, match="TCPStore.*mpiexec tells processes of each other.*init_process_group"):
        dist.TCPStore("localhost", 0)
    with pytest.raises(ImportError, match="init_device_mesh.*one row of ranks.*new_subgroups_by_enumeration"):
        from weft.distributed import init_device_mesh  # noqa: F401
    for name in ("rpc", "device_mesh", "fsdp", "checkpoint"):
        with pytest.raises(ModuleNotFoundError, match=f"weft.distributed.{name}: PyTorch 2.13 has it, weft will not"):
            importlib.import_module(f"weft.distributed.{name}")


def test_the_number_of_a_process_on_its_machine(monkeypatch):
    for name in ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)
    assert weft.distributed.get_node_local_rank(fallback_rank=3) == 3
    with pytest.raises(RuntimeError, match="LOCAL_RANK, .* start the program with mpiexec, or give fallback_rank"):
        weft.distributed.get_node_local_rank()
    monkeypatch.setenv("SLURM_LOCALID", "2")
    assert weft.distributed.get_node_local_rank() == 2
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert weft.distributed.get_node_local_rank(0) == 1


def test_importing_weft_does_not_import_mpi4py_and_a_missing_one_is_named(tmp_path):
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('no MPI here')\n")
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import weft, weft.distributed
assert "mpi4py" not in sys.modules
try:
    weft.distributed.init_process_group("mpi")
except RuntimeError as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True)
    assert "weft.distributed needs mpi4py and an MPI library (no MPI here): pip install 'weft[mpi]'" in ended.stdout


def test_the_number_of_processes_is_checked(tmp_path):
    needs_mpi()
    (tmp_path / "program.py").write_text(
        "import weft.distributed as dist\ndist.init_process_group('mpi', world_size=4, rank=0)\n"
    )
    ended = run_processes(1, tmp_path / "program.py")
    assert "world_size=4, rank=0, but mpiexec has started 1 process(es) and this is rank 0" in ended.stderr
