"""Isolates the programs of a user: the gateway is their only network, and they can write only to one folder.

It uses the standard library only and is complete in one file, because it runs under the Python in which the program is
installed. Namespaces for users, network, mounts and processes separate a program from everything except the files of
this machine. Landlock lets it read only the named files, and write only to its folder. A system-call filter refuses
sockets that are not of its network. If a part cannot be set up, it raises `OSError`; there is no weaker fallback.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import socket
import struct
import sys
from collections.abc import Callable

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_NS, _NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # Landlock's system calls, on every architecture
_READ, _ALL = 0b1101, (1 << 13) - 1  # execute, read files and folders; everything that the first version knows
SYSTEM = (
    "/usr", "/bin", "/lib", "/lib64", "/sbin", "/etc/ssl", "/etc/ld.so.cache", "/etc/localtime", "/etc/passwd",
    "/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/mime.types", "/etc/pki", "/etc/ca-certificates",
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu",
)  # fmt: skip
_ARCHITECTURES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # for the kernel; the number of `socket`
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
SHARED = "/dev/shm"  # where the C library makes the semaphores and the shared memory of multiprocessing


def _call(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def enter_namespaces(network: bool) -> None:
    """Enter new namespaces for users, mounts and shared memory and, without `network`, a network that has only a
    loopback of its own. The next child will be the first process of a new namespace for processes."""
    uid, gid = os.getuid(), os.getgid()
    _call("user namespaces", _LIBC.unshare(_NEW_USER | _NEW_NS | _NEW_IPC | _NEW_PID | (0 if network else _NEW_NET)))
    for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)
    private, tmpfs = 0x4000 | 0x40000, b"tmpfs"
    _call("mounts", _LIBC.mount(b"none", b"/", None, private, None))
    for folder in (b"/run", b"/var/run"):  # where services of this machine have their sockets
        if os.path.isdir(folder) and not os.path.islink(folder):
            _call("mounts", _LIBC.mount(tmpfs, folder, tmpfs, 0, b"size=64k"))
    if not network:
        _start_loopback()


def _start_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        fcntl.ioctl(link, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))  # up and running


def own_network(port: int) -> socket.socket:
    """Enter a network that has only a loopback and that no other process is in, and listen there."""
    _call("network namespaces", _LIBC.unshare(_NEW_NET))
    _start_loopback()
    return listen(port)


def limit_folder(folder: str, megabytes: float) -> None:
    """Mount a file system of limited size in memory at `folder`, which only this process and those that it starts see.
    It disappears with all its files when the last of them has ended. A part of it is mounted at `SHARED`, so that the
    limit counts both."""
    _call("mounts", _LIBC.unshare(_NEW_NS))
    size = int(megabytes * 1024)
    options = f"size={size}k,nr_inodes={1024 + size // 4},mode=700".encode()
    _call("mounts", _LIBC.mount(b"tmpfs", folder.encode(), b"tmpfs", 0x2 | 0x4, options))  # no setuid, no devices
    if os.path.isdir(SHARED):
        for part, target in (("shared", SHARED), ("files", folder)):  # `files` last, because it hides both parts
            os.mkdir(os.path.join(folder, part), 0o700)
            source = os.path.join(folder, part).encode()
            _call("mounts", _LIBC.mount(source, target.encode(), None, 0x1000, None))


class ProcessNamespaces:
    """Forks processes, each of which is the first of a new namespace: when it ends, all that it started end too. The
    caller's own process namespace must belong to the user namespace that it has entered."""

    def __init__(self) -> None:
        self.own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._leave()
        self._return()

    def fork(self) -> int:
        self._leave()
        try:
            pid = os.fork()
        except OSError:
            self._return()
            raise
        if pid:
            self._return()
        return pid

    def _leave(self) -> None:
        """From now on, children are in a new namespace."""
        _call("process namespaces", _LIBC.unshare(_NEW_PID))

    def _return(self) -> None:
        """From now on, children are in the caller's namespace."""
        _call("process namespaces", _LIBC.setns(self.own, _NEW_PID))


class FileRules:
    """The files that programs may read. They are opened once. Every run adds its own folder and is then restricted for
    the rest of its time."""

    def __init__(self, readable: list[str]) -> None:
        if _LIBC.syscall(_CREATE, None, 0, 1) < 1:
            raise OSError(0, "this kernel has no Landlock, or it is not switched on")
        wanted = [(p, _READ) for p in dict.fromkeys(readable)] + [(p, 0b110) for p in DEVICES]
        self.rules = [made for path, rights in wanted if (made := _rule(path, rights)) is not None]

    def restrict(self, writable: list[str]) -> None:
        """Restrict this process and all that it starts: they may write to the folders `writable` and nowhere else."""
        handled = ctypes.c_uint64(_ALL)
        rules = _call("Landlock", _LIBC.syscall(_CREATE, ctypes.byref(handled), 8, 0))
        own = [made for path in writable if (made := _rule(path, _ALL)) is not None]
        for rule in [*self.rules, *own]:
            _call("Landlock", _LIBC.syscall(_ADD, rules, 1, rule, 0))
        _call("no_new_privs", _LIBC.prctl(38, 1, 0, 0, 0))
        _call("Landlock", _LIBC.syscall(_RESTRICT, rules, 0))
        os.close(rules)


def _rule(path: str, rights: int) -> ctypes.Array[ctypes.c_char] | None:
    """A rule about one path, which stays open; None if this machine does not have it."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    if not os.path.isdir(path):
        rights &= 0b111
    return ctypes.create_string_buffer(struct.pack("=Qi", rights, handle))


class SocketFilter:
    """Allows a process and all that it starts only sockets of the namespace's own network. The namespace does not limit
    sockets in the file system (to which Landlock lets programs connect) and sockets of virtual machines. The filter of
    system calls is made once, and every run is restricted by it."""

    def __init__(self) -> None:
        if (known := _ARCHITECTURES.get(os.uname().machine)) is None:
            raise OSError(0, f"there is no filter of system calls for {os.uname().machine}")
        architecture, numbered = known
        load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06  # instructions of classic BPF
        refuse, allow = 0x50000 | 13, 0x7FFF0000  # the call gives "permission denied"; the call is made
        lines = [
            (load, 0, 0, 4), (equal, 0, 8, architecture), (load, 0, 0, 0), (at_least, 6, 0, 1 << 30),
            (equal, 5, 0, 425),  # io_uring_setup: its rings open sockets too
            (equal, 0, 5, numbered), (load, 0, 0, 16), (equal, 3, 0, socket.AF_INET), (equal, 2, 0, socket.AF_INET6),
            (equal, 1, 0, socket.AF_NETLINK), (give, 0, 0, refuse), (give, 0, 0, allow),
        ]  # fmt: skip
        self._code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
        self._program = ctypes.create_string_buffer(struct.pack("@HP", len(lines), ctypes.addressof(self._code)))

    def restrict(self) -> None:
        _call("no_new_privs", _LIBC.prctl(38, 1, 0, 0, 0))
        _call("seccomp", _LIBC.prctl(22, 2, self._program, 0, 0))


def die_with_parent() -> None:
    _LIBC.prctl(1, 9, 0, 0, 0)


def lead_family() -> None:
    """Be ended with the parent, and become the parent of every process of this family whose own parent has ended.
    Otherwise such a process could not be found without a process namespace."""
    die_with_parent()
    _LIBC.prctl(36, 1, 0, 0, 0)


def readable_by_default() -> list[str]:
    return [*SYSTEM, sys.prefix, sys.base_prefix, os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)]


def listen(port: int) -> socket.socket:
    """Listen on the loopback of this network."""
    return socket.create_server(("127.0.0.1", port), backlog=1024)


def lend(listener: socket.socket, to: int, name: bytes) -> None:
    """Give the socket with its name to the process at the other end of the Unix socket `to`. That process accepts the
    connections itself, so nothing is copied on the way to it."""
    with socket.socket(fileno=to) as lender, listener:
        socket.send_fds(lender, [name], [listener.fileno()])


class RunWalls:
    """The walls of a worker and of the runs that it forks. `made` are the settings of the worker, which say whether
    there are walls at all."""

    def __init__(self, made: dict) -> None:
        self.made = made
        self.files: list[int] = []  # descriptors that no run may have

    def enter(self, held: list[int]) -> None:
        """Put this process behind the walls, and so all that it forks. If there are walls, it goes on in a child. The
        parent closes the descriptors `held`."""
        made = self.made
        die_with_parent()
        if made["walls"]:
            enter_namespaces(made["network"])
            _go_on_in_child([0, 1, *held, made["lender"]])
            self._spaces = ProcessNamespaces()
            self.files = [self._spaces.own]
            self._rules = FileRules([*readable_by_default(), *made["readable"]])
            self._sockets = None if made["network"] else SocketFilter()

    def open_gateway(self) -> None:
        """Give the gateway the socket on which all runs reach it, unless each run gives it one of its own."""
        made = self.made
        if made["walls"] and not made["network"] and not made["own_network"]:
            lend(listen(made["port"]), made["lender"], b"all")
        elif not made["own_network"]:
            os.close(made["lender"])

    def fork(self) -> int:
        return self._spaces.fork() if self.made["walls"] else os.fork()

    def separate(self, folder: str) -> Callable[[bytes], None] | None:
        """Give the process of a run its own folder and, if the settings say so, its own network. Then return the
        function that gives the gateway the socket of this network, with the key of the process."""
        if self.made["walls"]:
            limit_folder(folder, self.made["disk_mb"])
        if not self.made["own_network"]:
            return None
        return functools.partial(lend, own_network(self.made["port"]), self.made["lender"])

    def writable(self, folder: str) -> list[str]:
        """The folders of a run: its own, and behind walls also its own part of `SHARED`."""
        return [folder, SHARED] if self.made["walls"] and os.path.isdir(SHARED) else [folder]

    def restrict(self, folder: str) -> None:
        """Restrict the process of a run to the files and sockets that it may use."""
        if self.made["walls"]:
            self._rules.restrict(self.writable(folder))
            if self._sockets is not None:
                self._sockets.restrict()


def _go_on_in_child(held: list[int]) -> None:
    """Go on in a child, which is the first process of a namespace of its own. Only a process of such a namespace can
    fork runs into further ones without another process for each. This process waits until the child ends."""
    pid = os.fork()
    if pid:
        for fd in held:
            os.close(fd)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)
    die_with_parent()
