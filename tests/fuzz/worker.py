"""The child process that makes and judges programs, and the parent's handle on it.

Both speak in lines of JSON. A child that dies or hangs takes only its case with it: the parent knows the lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, NamedTuple

HERE = Path(__file__).parent

MEMORY = 8 << 30
"""How much address space a child may take, in bytes: who asks for more must be refused."""


class Verdict(NamedTuple):
    lines: tuple[str, ...]
    failure: str | None


class Worker:
    """A child process. `patience` is how many seconds one case may take."""

    def __init__(self, device: str = "cpu", guarded: bool = False, patience: float = 60) -> None:
        self.device, self.guarded, self.patience = device, guarded, patience
        self.process: subprocess.Popen[bytes] | None = None
        self.rest = b""
        self.said: IO[bytes] | None = None
        """What the child writes to stderr: a file, since a pipe that nobody reads would stop it once it is full."""

    def start(self) -> subprocess.Popen[bytes]:
        variables = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        if self.guarded:
            variables["NORCH_CPU_GUARD"] = "1"
        self.rest, self.said = b"", tempfile.TemporaryFile()  # noqa: SIM115
        return subprocess.Popen(
            [sys.executable, "-X", "faulthandler", str(HERE / "worker.py"), self.device],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, env=variables,
            start_new_session=True,
        )  # fmt: skip

    def random_case(self, kind: str, seed: int) -> Verdict:
        return self.ask({"kind": kind, "seed": seed})

    def check(self, kind: str, lines: tuple[str, ...]) -> str | None:
        return self.ask({"kind": kind, "lines": lines}).failure

    def ask(self, request: dict[str, Any]) -> Verdict:
        """Has the child judge a case, and judges the child."""
        if self.process is None or self.process.poll() is not None:
            self.stop()
            self.process = self.start()
        lines: tuple[str, ...] = tuple(request.get("lines", ()))
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            while True:
                answer = json.loads(self.read_line())
                if "verdict" in answer:
                    return Verdict(lines, answer["verdict"])
                lines = tuple(answer["lines"])
        except TimeoutError:
            self.stop()
            return Verdict(lines, f"hangs: no answer in {self.patience:.0f} s")
        except (EOFError, BrokenPipeError):
            assert self.said is not None
            code = self.process.wait()
            self.said.seek(0)
            said = self.said.read()[-1500:].decode(errors="replace")
            self.stop()
            return Verdict(lines, f"crash: the process ended with {code}\n{said}")

    def read_line(self) -> bytes:
        """The child's next line. Raises TimeoutError, and EOFError once it has closed its pipe."""
        assert self.process is not None
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.rest:
                if not selector.select(self.patience):
                    raise TimeoutError
                more = os.read(self.process.stdout.fileno(), 1 << 20)
                if not more:
                    raise EOFError
                self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def stop(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # what it has forked holds its pipes
            self.process.communicate()
            self.process = None
        if self.said is not None:
            self.said.close()


def serve(device: str) -> None:
    """The child: answers requests until its input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    from kinds import KINDS
    from program import library, quiet

    library("torch").set_num_threads(1)
    if device == "cpu":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    else:
        library("norch").set_default_device(device)
        library("norch").set_cpu_fallback(True)  # for decompositions, which are the host's

    def answer(**said: Any) -> None:
        answers.write(json.dumps(said) + "\n")
        answers.flush()

    for text in sys.stdin:
        request = json.loads(text)
        kind = KINDS[request["kind"]]
        if "lines" not in request:
            with quiet():
                request["lines"] = kind.generate(random.Random(f"{request['kind']} {request['seed']}"))
            answer(lines=request["lines"])
        answer(verdict=kind.check(tuple(request["lines"])) if request["lines"] else None)


if __name__ == "__main__":
    serve(*sys.argv[1:])
