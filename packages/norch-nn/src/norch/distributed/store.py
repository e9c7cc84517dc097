"""Small values that all processes of a job see: addresses, identifiers, what was agreed on. No tensors."""

from __future__ import annotations

import base64
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from xmlrpc.client import Binary, ServerProxy, Transport
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

from .errors import DistributedError

PAUSE = 0.01
"""Between two looks for a key, in seconds."""


class Store(ABC):
    """Keys and values (bytes), as PyTorch's Store."""

    timeout = 300.0
    """How long `get` and `wait` wait for a key, in seconds."""

    @abstractmethod
    def set(self, key: str, value: bytes | str) -> None:
        """Gives `key` a value, a new one where it has one."""

    @abstractmethod
    def look(self, key: str) -> bytes | None:
        """The value of `key` now; None where it has none."""

    @abstractmethod
    def add(self, key: str, amount: int) -> int:
        """Adds `amount` to the count of `key`, 0 at first, and returns it, as one step that no other process can come
        into.
        """

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """The value of `key`, waited for. Raises DistributedError where it does not come within `timeout` seconds."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while (value := self.look(key)) is None:
            if time.monotonic() > deadline:
                raise DistributedError(f"store: no process gave {key!r} a value within {timeout or self.timeout:g} s")
            time.sleep(PAUSE)
        return value

    def wait(self, keys: list[str], timeout: float | None = None) -> None:
        """Waits until all `keys` have values."""
        for key in keys:
            self.get(key, timeout)

    def check(self, keys: list[str]) -> bool:
        """Whether all `keys` have values."""
        return all(self.look(key) is not None for key in keys)

    def set_timeout(self, timeout: Any) -> None:
        """Sets `timeout`, a number of seconds or a timedelta."""
        self.timeout = seconds(timeout)

    def own_address(self) -> str:
        """The address by which other processes reach this host."""
        return socket.getfqdn()

    def close(self) -> None:
        """Lets go of what it holds."""
        return None


def seconds(timeout: Any) -> float:
    """A timeout given as a number or as a timedelta. Raises ValueError where it is not above 0."""
    value = float(timeout.total_seconds() if hasattr(timeout, "total_seconds") else timeout)
    if not value > 0:
        raise ValueError(f"a timeout must be above 0 seconds, got {timeout!r}")
    return value


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class HashStore(Store):
    """A store of this process alone."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def set(self, key: str, value: bytes | str) -> None:
        with self._lock:
            self._values[key] = _bytes(value)

    def look(self, key: str) -> bytes | None:
        return self._values.get(key)

    def add(self, key: str, amount: int) -> int:
        with self._lock:
            total = int(self._values.get(key, b"0")) + amount
            self._values[key] = str(total).encode()
        return total


class _Handler(SimpleXMLRPCRequestHandler):
    rpc_paths = ("/norch",)

    def log_request(self, *args: Any) -> None:
        return None


class _Server(SimpleXMLRPCServer):
    allow_reuse_address = True


def serve(functions: dict[str, Callable[..., Any]], host: str = "", port: int = 0) -> SimpleXMLRPCServer:
    """Answers calls of `functions` by other processes, in a thread of its own. Nothing that is sent is ever run."""
    server = _Server((host, port), _Handler, logRequests=False, allow_none=True)
    for name, function in functions.items():
        server.register_function(function, name)
    threading.Thread(target=server.serve_forever, args=(0.1,), name="norch.distributed", daemon=True).start()
    return server


class _Impatient(Transport):
    """Connections that give up after `timeout` seconds."""

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self.timeout = timeout

    def make_connection(self, host: Any) -> Any:
        connection = super().make_connection(host)
        connection.timeout = self.timeout
        return connection


def client(address: str, timeout: float = 60.0) -> ServerProxy:
    """What calls the functions of `serve` at "host:port"; OSError where the answer takes over `timeout` seconds."""
    return ServerProxy(f"http://{address}/norch", _Impatient(timeout), allow_none=True)


class TCPStore(Store):
    """A store that one process, the master, keeps for all, at `host_name` and a port: is_master says whether it is this
    one. world_size: PyTorch's, ignored.

    port: 0 lets the master take a free one, which `port` then says. wait_for_workers is PyTorch's, and ignored. Raises
    DistributedError where the master cannot be reached within `timeout` (seconds, or a timedelta).
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: Any = 300.0,
        wait_for_workers: bool = True,
    ) -> None:
        self.timeout = seconds(timeout)
        self.host, self.port, self.is_master = host_name, port, is_master
        self._values: HashStore | None = None
        self._server: SimpleXMLRPCServer | None = None
        if is_master:
            self._values = values = HashStore()
            answers: dict[str, Callable[..., Any]] = {
                "set": lambda key, value: values.set(key, value.data),
                "look": lambda key: None if (value := values.look(key)) is None else Binary(value),
                "add": lambda key, amount: str(values.add(key, int(amount))),
            }
            try:
                self._server = serve(answers, "", port)
            except OSError as error:
                raise DistributedError(f"store: port {port} of {host_name} cannot be used: {error}") from None
            self.port = self._server.server_address[1]
            return
        deadline = time.monotonic() + self.timeout
        self._proxies = threading.local()
        while True:
            try:
                self.look("")
                return
            except DistributedError:
                if time.monotonic() > deadline:
                    raise DistributedError(
                        f"store: no process serves it at {host_name}:{port} within {self.timeout:g} s; is rank 0 "
                        "running there, and can its port be reached?"
                    ) from None
                time.sleep(0.05)

    def _ask(self, name: str, *args: Any) -> Any:
        """Connections are kept, one a thread."""
        proxy = getattr(self._proxies, "proxy", None)
        if proxy is None:
            proxy = self._proxies.proxy = client(f"{self.host}:{self.port}")
        try:
            return getattr(proxy, name)(*args)
        except (OSError, HTTPException) as error:
            with suppress(Exception):
                proxy("close")()
            self._proxies.proxy = None
            raise DistributedError(f"store: {self.host}:{self.port} does not answer: {error}") from None

    def set(self, key: str, value: bytes | str) -> None:
        if self._values is not None:
            self._values.set(key, value)
        else:
            self._ask("set", key, Binary(_bytes(value)))

    def look(self, key: str) -> bytes | None:
        if self._values is not None:
            return self._values.look(key)
        value = self._ask("look", key)
        return None if value is None else bytes(value.data)

    def add(self, key: str, amount: int) -> int:
        if self._values is not None:
            return self._values.add(key, amount)
        return int(self._ask("add", key, str(amount)))

    def own_address(self) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((self.host, self.port))  # sends nothing, and says which address would
            return str(probe.getsockname()[0])

    def close(self) -> None:
        """Closes the connection, and of the master the port."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class FileStore(Store):
    """A store in a file, `file_name`, that all processes can open and lock. The file must not be left from an earlier
    job.

    world_size: ignored, as in PyTorch.
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        self.path = str(file_name)
        self._values: dict[str, bytes] = {}
        self._read = 0

    def _append(self, make: Callable[[], tuple[str, bytes]]) -> None:
        import fcntl

        with open(self.path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._catch_up()
            key, value = make()
            file.write(base64.b64encode(key.encode()) + b" " + base64.b64encode(value) + b"\n")

    def _catch_up(self) -> None:
        try:
            with open(self.path, "rb") as file:
                file.seek(self._read)
                lines = file.read()
        except FileNotFoundError:
            return
        whole = lines[: lines.rfind(b"\n") + 1]
        for line in whole.splitlines():
            key, _, value = line.partition(b" ")
            self._values[base64.b64decode(key).decode()] = base64.b64decode(value)
        self._read += len(whole)

    def set(self, key: str, value: bytes | str) -> None:
        self._append(lambda: (key, _bytes(value)))

    def look(self, key: str) -> bytes | None:
        self._catch_up()
        return self._values.get(key)

    def add(self, key: str, amount: int) -> int:
        total = 0

        def make() -> tuple[str, bytes]:
            nonlocal total
            total = int(self._values.get(key, b"0")) + amount
            return key, str(total).encode()

        self._append(make)
        return total


class PrefixStore(Store):
    """The keys of another store that begin with `prefix`, without it."""

    def __init__(self, prefix: str, store: Store) -> None:
        self.prefix, self.store, self.timeout = prefix, store, store.timeout

    def set(self, key: str, value: bytes | str) -> None:
        self.store.set(f"{self.prefix}/{key}", value)

    def look(self, key: str) -> bytes | None:
        return self.store.look(f"{self.prefix}/{key}")

    def add(self, key: str, amount: int) -> int:
        return self.store.add(f"{self.prefix}/{key}", amount)

    def own_address(self) -> str:
        return self.store.own_address()
