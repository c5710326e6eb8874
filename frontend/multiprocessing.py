"""weft.multiprocessing: Python's multiprocessing, by PyTorch's path. Processes share no tensors: they get copies."""

import multiprocessing
import sys
import traceback
from multiprocessing.connection import wait

_ROOT = __name__.partition(".")[0]


def get_all_sharing_strategies():
    """The one there is: copies through files that the system keeps."""
    return {"file_system"}


def get_sharing_strategy():
    """ "file_system": how tensors travel between processes."""
    return "file_system"


def set_sharing_strategy(new_strategy):
    """Nothing: tensors are copied."""


class ProcessException(Exception):
    """A process that `spawn` has started did not end as it should: its number, and that of the system."""

    def __init__(self, msg, error_index, pid):
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """Its function raised; the message has the traceback."""

    def __init__(self, msg, error_index, error_pid):
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """It was ended, by a signal or by os._exit."""

    def __init__(self, msg, error_index, error_pid, exit_code, signal_name=None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


class ProcessContext:
    """The processes that `spawn` has started without waiting for them."""

    def __init__(self, processes, errors):
        self.processes, self._errors = processes, errors
        self._running = {process.sentinel: k for k, process in enumerate(processes)}

    def pids(self):
        """Their numbers in the system."""
        return [process.pid for process in self.processes]

    def join(self, timeout=None, grace_period=None):
        """Wait until one of them ends, or for `timeout` seconds. Returns whether all have ended; if one has failed, the
        others are ended and it is a ProcessException."""
        for sentinel in wait(list(self._running), timeout=timeout):
            k = self._running.pop(sentinel)
            self.processes[k].join()
            if self.processes[k].exitcode:
                self._fail(k)
        return not self._running

    def _fail(self, k):
        for process in self.processes:
            if process.is_alive():
                process.terminate()
            process.join()
        failed = self.processes[k]
        try:
            told = self._errors[k].recv()
        except EOFError:  # it had no time to say anything
            message = f"process {k} terminated with exit code {failed.exitcode}"
            raise ProcessExitedException(message, k, failed.pid, failed.exitcode) from None
        message = f"\n\n-- Process {k} terminated with the following error:\n{told}"
        raise ProcessRaisedException(message, k, failed.pid)


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Run fn(k, *args) in a process for every k below nprocs, and wait for all of them.

    join=False: a ProcessContext, at once. A process that fails ends the others and is a ProcessRaisedException or
    ProcessExitedException. Where weft stands for torch, the processes are forks: new ones would import torch itself.
    """
    context = multiprocessing.get_context("fork" if sys.modules.get("torch") is sys.modules[_ROOT] else start_method)
    processes, errors = [], []
    for k in range(nprocs):
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, k, args, theirs), daemon=daemon)
        process.start()
        theirs.close()
        processes.append(process)
        errors.append(mine)
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def _run(fn, k, args, errors):
    try:
        fn(k, *args)
    except KeyboardInterrupt:
        pass  # the process that waits has it too
    except Exception:
        errors.send(traceback.format_exc())
        sys.exit(1)


def __getattr__(name):
    return getattr(multiprocessing, name)
