"""An engine that strangers could have written: tensors between processes on the CPU through plain sockets.

Every two members have a connection. What arrives is put where the one who waits for it looks; collectives are computed
in a thread, one after the other, as the simplest thing that is right: everybody sends everything to everybody.
"""

import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue

import numpy as np

from norch.backend import hookimpl
from norch.distributed import DistributedError
from norch.distributed.engine import DONE, Communicator, Engine, Request

HEAD = struct.Struct("!iq")
"""Before each message: its channel, and how many bytes it has."""

COLLECTIVES = -1
"""The channel of collectives; those of `exchange` are their tags."""

FOLD = {
    "sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum, "band": np.bitwise_and,
    "bor": np.bitwise_or, "bxor": np.bitwise_xor,
}  # fmt: skip


def flat(tensor):
    return tensor.numpy().reshape(-1)


def raw(tensor):
    return flat(tensor).view("uint8")


class Peer:
    """A connection to another member: a thread reads what comes, a thread writes what goes."""

    def __init__(self, name, link):
        self.name, self.link = name, link
        self.lock, self.boxes, self.gone = threading.Lock(), {}, False
        self.outbox = SimpleQueue()
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._read)]
        for thread in self.threads:
            thread.start()

    def box(self, channel):
        with self.lock:
            return self.boxes.setdefault(channel, SimpleQueue())

    def send(self, channel, values):
        self.outbox.put((channel, bytes(values)))

    def take(self, channel):
        """The next message, or None where there is none yet. Raises where none will come."""
        gone = self.gone  # looked at first: what came before the end is there
        try:
            return self.box(channel).get_nowait()
        except Empty:
            if gone:
                raise DistributedError(f"sockets: {self.name} closed its connection") from None
            return None

    def wait(self, channel):
        """The next message. Raises where none will come."""
        while True:
            try:
                return self.box(channel).get(timeout=0.05)
            except Empty:
                message = self.take(channel)
                if message is not None:
                    return message

    def _write(self):
        while (message := self.outbox.get()) is not None:
            channel, values = message
            try:
                self.link.sendall(HEAD.pack(channel, len(values)) + values)
            except OSError:
                return

    def _read(self):
        try:
            with self.link.makefile("rb") as file:
                while head := file.read(HEAD.size):
                    channel, length = HEAD.unpack(head)
                    self.box(channel).put(file.read(length))
        except (OSError, struct.error):
            pass
        self.gone = True

    def close(self):
        """After what is on its way out."""
        self.outbox.put(None)
        self.threads[0].join()
        self.link.close()

    def abort(self):
        self.outbox.put(None)
        try:
            self.link.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Computed(Request):
    def __init__(self, future):
        self.future = future

    def test(self):
        if self.future.done():
            self.future.result()
            return True
        return False


class Receipts(Request):
    """Messages that are to come; each is taken by the first that waits for it."""

    def __init__(self, left):
        self.left = left

    def test(self):
        while self.left:
            peer, channel, tensor = self.left[0]
            message = peer.take(channel)
            if message is None:
                return False
            raw(tensor)[:] = np.frombuffer(message, "uint8")
            del self.left[0]
        return True


class Sockets(Communicator):
    def __init__(self, index, peers):
        self.index, self.peers = index, peers
        self.size = len(peers) + 1
        self.worker = ThreadPoolExecutor(1)

    def _later(self, work, *args):
        return Computed(self.worker.submit(work, *args))

    def _from_all(self, out, shares):
        """Sends each member its share, and writes what comes from each into its row of `out`."""
        for member, peer in self.peers.items():
            peer.send(COLLECTIVES, shares[member])
        out[self.index] = shares[self.index]
        for member, peer in self.peers.items():
            out[member] = np.frombuffer(peer.wait(COLLECTIVES), "uint8")

    def _reduced(self, shares, op, out):
        """`shares` has a row for each member; `out` becomes the reduction of those that they have for this one."""
        rows = np.empty((self.size, out.nbytes), "uint8")
        self._from_all(rows, [share.view("uint8") for share in shares])
        FOLD[op].reduce(rows.view(out.dtype), axis=0, dtype=out.dtype, out=out)

    def all_reduce(self, tensor, op):
        values = flat(tensor)
        return self._later(self._reduced, [values] * self.size, op, values)

    def reduce_scatter(self, out, tensor, op):
        return self._later(self._reduced, flat(tensor).reshape(self.size, -1), op, flat(out))

    def all_gather(self, out, tensor):
        values = raw(tensor)
        return self._later(self._from_all, raw(out).reshape(self.size, -1), [values] * self.size)

    def broadcast(self, tensor, root):
        return self._later(self._broadcast, raw(tensor), root)

    def _broadcast(self, values, root):
        if root != self.index:
            values[:] = np.frombuffer(self.peers[root].wait(COLLECTIVES), "uint8")
        else:
            for peer in self.peers.values():
                peer.send(COLLECTIVES, values)

    def exchange(self, sends, receipts, tag=0):
        if any(member is None for _, member in receipts):
            raise NotImplementedError("sockets: receipts name their sender")
        for tensor, member in sends:
            self.peers[member].send(tag, raw(tensor))
        left = [(self.peers[member], tag, tensor) for tensor, member in receipts]
        return Receipts(left) if left else DONE

    def abort(self):
        for peer in self.peers.values():
            peer.abort()

    def close(self):
        self.worker.shutdown()
        for peer in self.peers.values():
            peer.close()


class SocketsEngine(Engine):
    name = "sockets"
    priority = 1  # it is installed to be used

    def connect(self, ranks, rank, store, timeout):
        index = list(ranks).index(rank)
        peers = {}
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(timeout)
            store.set(str(index), str(server.getsockname()[1]))
            try:
                for member in range(len(ranks)):
                    if member < index:
                        link = socket.create_connection(("127.0.0.1", int(store.get(str(member), timeout))), timeout)
                        link.sendall(struct.pack("!i", index))
                    elif member > index:
                        link, _ = server.accept()
                        link.settimeout(timeout)
                        (member,) = struct.unpack("!i", link.recv(4, socket.MSG_WAITALL))
                    else:
                        continue
                    link.settimeout(None)
                    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    peers[member] = partial(Peer, f"rank {ranks[member]}", link)
            except TimeoutError:
                raise DistributedError(f"sockets: not all of ranks {list(ranks)} came within {timeout:g} s") from None
        return Sockets(index, {member: make() for member, make in sorted(peers.items())})


@hookimpl
def norch_engine():
    return SocketsEngine()
