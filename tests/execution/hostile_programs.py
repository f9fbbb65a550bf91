"""Programs that try to break out, to bring the machine down, or to cheat, and how each must end.

A program prints ESCAPED if it got what it must not get. `{canary}` is a file outside the jail, `{victim}` a process of
the same user, `{port}` a server of the host on 127.0.0.1, `{path}` and `{name}` its Unix sockets, by path and abstract.
"""

# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HostileProgram:
    kind: str
    name: str
    source: str
    ends: tuple[str, ...] = ("ok",)
    says: str = ""  # what its output must contain
    long: bool = False  # it runs until a limit on time


SYSCALL = """
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
def syscall(x86, arm, *args):
    number = x86 if platform.machine() == "x86_64" else arm
    if number is None: return print("none here")
    done = libc.syscall(number, *args)
    print("ESCAPED" if done >= 0 else errno.errorcode[ctypes.get_errno()])
"""
TRY = """
import os, socket, sys
def attempt(what):
    try:
        got = what()
    except BaseException as error:
        print(type(error).__name__)
    else:
        print("ESCAPED", got)
"""
H = HostileProgram
KILLED = ("killed", "memory", "error", "timeout")

PROGRAMS = [
    H("processes", "fork bomb", "import os\nwhile True:\n    os.fork()", ("processes",)),
    H("processes", "fork bomb that never minds", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", ("timeout", "processes"), long=True),
    H("processes", "fork bomb in sessions", "import os, time\nwhile True:\n    try:\n        if os.fork() == 0: os.setsid()\n    except OSError: time.sleep(.01)", ("timeout", "processes"), long=True),
    H("processes", "fork bomb that replaces itself", "import os\nwhile True:\n    try:\n        if os.fork(): os._exit(0)\n    except OSError: pass", ("ok", "timeout", "processes", "killed"), long=True),
    H("processes", "thread bomb", "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()", ("processes",)),
    H("processes", "starting programs for ever", "import subprocess\nwhile True: subprocess.run(['/bin/true'])", ("timeout",), long=True),
    H("processes", "zombies", "import os\nfor _ in range(8):\n    if os.fork() == 0: os._exit(0)\nprint('done')", says="done"),
    H("memory", "one large piece", "x = b'a' * 10**10", ("memory",)),
    H("memory", "small pieces", "x = []\nwhile True: x.append(bytes(100_000))", ("memory",)),
    H("memory", "never minding", "while True:\n    try:\n        x = [0] * 10**9\n    except MemoryError: pass", ("timeout", "memory"), long=True),
    H("memory", "many processes", "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        x = bytearray(40 << 20)\n        time.sleep(30)\ntime.sleep(30)", ("memory",)),
    H("memory", "shared mappings", "import mmap\nkeep = []\nwhile True:\n    keep.append(mmap.mmap(-1, 50 << 20))\n    keep[-1].write(bytes(50 << 20))", ("memory",)),
    H("memory", "processes that stand still", "import os, signal, time\nheld = []\nfor _ in range(6):\n    held.append(os.fork())\n    if held[-1] == 0:\n        x = bytearray(60 << 20)\n        os.kill(os.getpid(), signal.SIGSTOP)\nfor pid in held: os.waitpid(pid, os.WUNTRACED)\ntime.sleep(5)\nprint('ESCAPED')", ("memory",)),
    H("memory", "a first thread that has ended", "import ctypes, os, platform, threading, time\nr, w = os.pipe()\ndef hold():\n    x = bytearray(60 << 20)\n    os.write(w, b'.')\n    time.sleep(99)\nfor _ in range(4):\n    if os.fork() == 0:\n        threading.Thread(target=hold).start()\n        ctypes.CDLL(None).syscall(60 if platform.machine() == 'x86_64' else 93, 0)\nready = 0\nwhile ready < 4: ready += len(os.read(r, 4))\ntime.sleep(5)\nprint('ESCAPED')", ("memory",)),
    H("uncounted memory", "files in memory", SYSCALL + "syscall(319, 279, b'x', 0)\nsyscall(447, 447, 0)", says="EPERM"),
    H("uncounted memory", "System V shared memory", SYSCALL + "syscall(29, 194, 0, 1 << 30, 0o1600)", says="EPERM"),
    H("uncounted memory", "message queues", SYSCALL + "syscall(240, 180, b'/q', 0o102, 0o600, None)\nsyscall(68, 186, 0, 0o1600)", says="EPERM"),
    H("uncounted memory", "shared memory of multiprocessing", "from multiprocessing import shared_memory\nm = shared_memory.SharedMemory(create=True, size=64 << 20)\nm.buf[:] = bytes(64 << 20)\nprint('ESCAPED')", ("disk", "error", "killed", "memory")),
    H("uncounted memory", "sockets", "import os, socket, time\nkeep = []\nfor _ in range(9):\n    if os.fork() == 0: break\nfor _ in range(120):\n    keep += socket.socketpair()\n    for s in keep[-2:]:\n        s.setblocking(False)\n        try:\n            while True: s.send(bytes(1 << 15))\n        except BlockingIOError: pass\ntime.sleep(2)\nprint('ESCAPED')", ("memory",)),
    H("uncounted memory", "sockets with large buffers", "import socket, time\nkeep, held = [], 0\nfor _ in range(100):\n    keep += socket.socketpair()\n    for s in keep[-2:]:\n        s.setblocking(False)\n        for kind in (socket.SO_SNDBUF, socket.SO_RCVBUF, 32, 33):\n            try: s.setsockopt(socket.SOL_SOCKET, kind, 8 << 20)\n            except OSError: pass\n        try:\n            while True: held += s.send(bytes(1 << 16))\n        except OSError: pass\n    if held > 160 << 20:\n        time.sleep(1)\n        print('ESCAPED', held >> 20)\n        break\nprint('held', held >> 20)", ("ok", "memory")),
    H("uncounted memory", "pages given to a pipe", SYSCALL + "r, w = os.pipe()\nbuf = ctypes.create_string_buffer(1 << 21)\nvec = (ctypes.c_size_t * 2)(ctypes.addressof(buf), 1 << 21)\nsyscall(278, 75, w, vec, 1, 8)", says="EPERM"),
    H("uncounted memory", "pages of a file in a pipe", SYSCALL + "open('f', 'wb').write(bytes(1 << 20))\nf = os.open('f', os.O_RDONLY)\nr, w = os.pipe()\nsyscall(275, 76, f, None, w, None, 1 << 16, 0)\nsyscall(276, 77, r, w, 1 << 16, 0)\nsyscall(40, 71, w, f, None, 1 << 16)", says="EPERM"),
    H("uncounted memory", "many full pipes", "import fcntl, os, time\nheld = 0\nfor _ in range(9):\n    if os.fork() == 0: break\nfor _ in range(120):\n    r, w = os.pipe()\n    try: fcntl.fcntl(w, 1031, 1 << 20)\n    except OSError: pass\n    os.set_blocking(w, False)\n    try:\n        while True: held += os.write(w, bytes(1 << 16))\n    except OSError: pass\ntime.sleep(2)\nprint('ESCAPED' if held > 20 << 20 else 'held', held >> 20)", ("ok", "memory")),
    H("uncounted memory", "descriptors in flight", TRY + "import array\na, b = socket.socketpair()\nr, w = os.pipe()\nattempt(lambda: a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [r, w]))]))", says="PermissionError"),
    H("processor time", "infinite loop", "while True: pass", ("timeout",), long=True),
    H("processor time", "ignoring every warning", "import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except OSError: pass\nwhile True: pass", ("timeout",), long=True),
    H("processor time", "counting the warnings", "import signal\nsignal.signal(signal.SIGXCPU, lambda *_: None)\nwhile True: pass", ("timeout",), long=True),
    H("processor time", "one child after the other", "import os, time\nwhile True:\n    pid = os.fork()\n    if pid == 0:\n        while time.process_time() < .5: pass\n        os._exit(0)\n    os.waitpid(pid, 0)", ("timeout",), long=True),
    H("processor time", "a huge power", "print(len(str(9**9**8)))", ("timeout", "memory", "error"), long=True),
    H("processor time", "a catastrophic pattern", "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')", ("timeout",), long=True),
    H("waiting", "sleep past the limit", "import time\ntime.sleep(1000)", ("timeout",), long=True),
    H("waiting", "sleep that catches everything", "import time, signal\nsignal.signal(signal.SIGTERM, lambda *_: None)\nwhile True:\n    try: time.sleep(1000)\n    except BaseException: pass", ("timeout",), long=True),
    H("waiting", "input that never comes", "import os\nr, w = os.pipe()\nos.read(r, 1)", ("timeout",), long=True),
    H("waiting", "stopping itself", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", ("timeout",), long=True),
    H("waiting", "an exit that waits", "import atexit, time\natexit.register(time.sleep, 1000)", ("timeout",), long=True),
    H("waiting", "output that drips", "import os, time\nwhile True: os.write(1, b'.'); time.sleep(.1)", ("timeout",), long=True),
    H("waiting", "a parent that waits for a stopped child", "import os, signal\npid = os.fork()\nif pid == 0: os.kill(os.getpid(), signal.SIGSTOP)\nos.waitpid(pid, 0)", ("timeout",), long=True),
    H("recursion", "deep recursion", "import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1) + 1\nf(0)", KILLED),
    H("recursion", "deep recursion in C", "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\nrepr(x)", KILLED),
    H("recursion", "brackets for the compiler", "eval('(' * 10**6)", ("error", "memory", "killed", "output")),
    H("recursion", "signs for the compiler", "eval('-' * 10**6 + '1')", ("error", "memory", "killed", "output")),
    H("recursion", "an error that raises itself", "class E(Exception):\n    def __str__(self): raise E\nraise E", ("error", "killed")),
    H("recursion", "a traceback without end", "import sys\nsys.excepthook = lambda *a: sys.excepthook(*a)\n1 / 0", ("error", "killed", "memory")),
    H("disk", "one file", "f = open('x', 'wb')\nwhile True: f.write(bytes(1 << 20)); f.flush()", ("disk",)),
    H("disk", "many files", "n = 0\nwhile True:\n    n += 1\n    open(f'x{n}', 'wb').write(bytes(1 << 20))", ("disk",)),
    H("disk", "swallowing the error", "try:\n    open('x', 'wb').write(bytes(99 << 20))\nexcept OSError as e: print(e.errno)"),
    H("disk", "a file without blocks", "f = open('x', 'wb')\nf.truncate(1 << 40)\nprint('ESCAPED')", ("disk",)),
    H("disk", "many empty files", "n = 0\nwhile n < 200_000:\n    n += 1\n    open(f'x{n}', 'w').close()\nprint('ESCAPED')", ("disk", "timeout")),
    H("disk", "many empty folders", "import os\nfor n in range(200_000): os.mkdir(f'd{n}')\nprint('ESCAPED')", ("disk", "timeout")),
    H("disk", "many links", "import os\nopen('x', 'w').close()\nfor n in range(200_000): os.symlink('x' * 200, f'l{n}')\nprint('ESCAPED')", ("disk", "timeout")),
    H("hidden disk", "files without a name", "import os, time\nfor n in range(40):\n    fd = os.open(f'f{n}', os.O_CREAT | os.O_RDWR)\n    os.unlink(f'f{n}')\n    os.write(fd, bytes(1 << 20))\ntime.sleep(2)\nprint('ESCAPED')", ("disk",)),
    H("hidden disk", "files that never had a name", "import os, time\nkeep = []\nfor n in range(40):\n    keep.append(os.open('.', os.O_TMPFILE | os.O_RDWR))\n    os.write(keep[-1], bytes(1 << 20))\ntime.sleep(2)\nprint('ESCAPED')", ("disk", "error")),
    H("hidden disk", "files without a name in memory", "import ctypes, os, time\nlibc = ctypes.CDLL(None)\nlibc.mmap.restype = ctypes.c_void_p\nfor n in range(40):\n    fd = os.open(f'f{n}', os.O_CREAT | os.O_RDWR)\n    os.unlink(f'f{n}')\n    os.write(fd, bytes(1 << 20))\n    libc.mmap(None, ctypes.c_size_t(4096), 1, 1, fd, ctypes.c_long(0))\n    os.close(fd)\ntime.sleep(2)\nprint('ESCAPED')", ("disk",)),
    H("hidden disk", "files without a name on the way", "import array, os, socket, time\na, b = socket.socketpair()\nsent = 0\nfor n in range(40):\n    fd = os.open('f', os.O_CREAT | os.O_RDWR)\n    os.unlink('f')\n    try:\n        os.write(fd, bytes(1 << 20))\n        a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])\n        sent += 1\n    except OSError: pass\n    os.close(fd)\nprint('ESCAPED' if sent > 12 else 'refused')", ("ok",), says="refused"),
    H("hidden disk", "files of a thread", "import os, threading, time\ndef hold():\n    for n in range(40):\n        fd = os.open(f'f{n}', os.O_CREAT | os.O_RDWR)\n        os.unlink(f'f{n}')\n        os.write(fd, bytes(1 << 20))\n    time.sleep(2)\n    print('ESCAPED')\nthreading.Thread(target=hold).start()", ("disk", "ok")),
    H("hidden disk", "paths that are too long", "import os, time\nfor _ in range(40):\n    os.mkdir('d' * 200); os.chdir('d' * 200)\nfor n in range(40): open(f'f{n}', 'wb').write(bytes(1 << 20))\ntime.sleep(2)\nprint('ESCAPED')", ("disk",)),
    H("hidden disk", "folders that cannot be read", "import os, time\nos.mkdir('d')\nos.chdir('d')\nfor n in range(40): open(f'f{n}', 'wb').write(bytes(1 << 20))\nos.chmod('.', 0)\ntime.sleep(2)\nprint('ESCAPED')", ("disk",)),
    H("hidden disk", "folders that never could be read", "import os, time\nos.mkdir('d', 0o300)\nos.chdir('d')\nfor n in range(40): open(f'f{n}', 'wb').write(bytes(1 << 20))\ntime.sleep(2)\nprint('ESCAPED')", ("disk",)),
    H("hidden disk", "space past the end of a file", "import ctypes, os\nlibc = ctypes.CDLL(None)\nfd = os.open('f', os.O_CREAT | os.O_RDWR)\nprint('refused' if libc.fallocate(fd, 1, ctypes.c_long(0), ctypes.c_long(500 << 20)) else 'ESCAPED')", says="refused"),
    H("folders", "500 folders deep", "import os\nfor _ in range(500):\n    os.mkdir('d'); os.chdir('d')\nos.chmod('.', 0)", ("ok", "disk")),
    H("folders", "1,200 folders deep", "import os\nfor _ in range(1200):\n    os.mkdir('d'); os.chdir('d')", ("ok", "disk")),
    H("folders", "deep and not to be read", "import os\nfor _ in range(60):\n    os.mkdir('d' * 100, 0o300); os.chdir('d' * 100)", ("ok", "disk")),
    H("folders", "names nobody can type", "import os\nfor n in (b'\\xff\\xfe', b'a\\nb', b' ', b'-rf'):\n    os.mkdir(n)\n    os.symlink('/', n + b'/root')\n    os.mkfifo(n + b'/pipe')\n    os.chmod(n, 0)\nprint('named')", says="named"),
    H("folders", "removing its own folder", TRY + "import shutil\nhere = os.getcwd()\nfor f in (lambda: os.rmdir(here), lambda: os.rename(here, here + '2'), lambda: shutil.rmtree(here)):\n    try: f()\n    except OSError: pass\nprint('done')", says="done"),
    H("folders", "a folder in the place of its own", "import os\nhere = os.getcwd()\ntry:\n    os.rename(here, here + '2')\n    os.symlink('/', here)\nexcept OSError: pass\nprint('done')", says="done"),
    H("limits", "raising its own limits", TRY + "import resource as r\nfor k in (r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_NPROC, r.RLIMIT_FSIZE): attempt(lambda: r.setrlimit(k, (r.RLIM_INFINITY, r.RLIM_INFINITY)))", says="ValueError"),
    H("limits", "too many open files", "keep = [open('/dev/null') for _ in range(5000)]\nprint('ESCAPED')", ("error",)),
    H("limits", "locked memory", "import ctypes\nlibc = ctypes.CDLL(None)\nbuf = ctypes.create_string_buffer(1 << 20)\nprint('ESCAPED' if libc.mlock(buf, 1 << 20) == 0 or libc.mlockall(3) == 0 else 'refused')", says="refused"),
    H("limits", "real-time priority", TRY + "attempt(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))\nattempt(lambda: os.nice(-10))"),
    H("limits", "what the user has few of", SYSCALL + "syscall(253, None)\nsyscall(294, 26, 0)\nsyscall(206, 0, 65536, ctypes.byref(ctypes.c_ulong(0)))", says="EPERM"),
    H("crashes", "abort", "import os\nos.abort()", ("killed",)),
    H("crashes", "segmentation fault", "import ctypes\nctypes.string_at(0)", ("killed",)),
    H("crashes", "no descriptors at all", "import os\nos.closerange(0, 64)", ("ok", "error", "killed")),
    H("crashes", "import hooks", "import sys, builtins\nbuiltins.__import__ = None\nsys.meta_path.clear()\nsys.path[:] = []\nsys.modules.clear()\nprint('still here')", ("ok", "error")),
    H("crashes", "an interpreter taken apart", "import gc, sys\nfor m in list(sys.modules.values()):\n    try: vars(m).clear()\n    except TypeError: pass\ngc.collect()", ("ok", "error", "killed")),
    H("crashes", "an unknown instruction", "import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(b'\\0' * 64)\nctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()", ("killed", "error")),
]  # fmt: skip
