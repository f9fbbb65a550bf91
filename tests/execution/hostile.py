"""Programs that try to get out, or to take the machine down, and how each must end.

A program prints ESCAPED where it got what it must not get; the test looks for that word. `{canary}` is a file outside,
`{port}` a server of the host on 127.0.0.1, `{path}` and `{name}` its Unix sockets, by path and abstract.
"""

# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hostile:
    name: str
    source: str
    ends: tuple[str, ...] = ("ok",)
    says: str = ""  # what its output must contain


SYSCALL = """
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
def syscall(x86, arm, *args):
    number = x86 if platform.machine() == "x86_64" else arm
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

HOSTILE = [
    # -- too much of everything
    Hostile("fork bomb", "import os\nwhile True:\n    os.fork()", ("processes",)),
    Hostile("fork bomb that never minds", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", ("timeout", "processes")),
    Hostile("fork bomb in sessions", "import os, time\nwhile True:\n    try:\n        if os.fork() == 0: os.setsid()\n    except OSError: time.sleep(.01)", ("timeout", "processes")),
    Hostile("thread bomb", "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()", ("processes",)),
    Hostile("memory bomb", "x = b'a' * 10**10", ("memory",)),
    Hostile("memory bomb in small pieces", "x = []\nwhile True: x.append(bytes(100_000))", ("memory",)),
    Hostile("memory bomb that never minds", "while True:\n    try:\n        x = [0] * 10**9\n    except MemoryError: pass", ("timeout", "memory")),
    Hostile("memory bomb in many processes", "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        x = bytearray(40 << 20)\n        time.sleep(30)\ntime.sleep(30)", ("memory",)),
    Hostile("shared mapping bomb", "import mmap\nkeep = []\nwhile True:\n    keep.append(mmap.mmap(-1, 50 << 20))\n    keep[-1].write(bytes(50 << 20))", ("memory",)),
    Hostile("memory files outside the count", SYSCALL + "syscall(319, 279, b'x', 0)", says="EPERM"),
    Hostile("System V shared memory", SYSCALL + "syscall(29, 194, 0, 1 << 30, 0o1600)", says="EPERM"),
    Hostile("message queues", SYSCALL + "syscall(240, 180, b'/q', 0o102, 0o600, None)", says="EPERM"),
    Hostile("shared memory of multiprocessing", "from multiprocessing import shared_memory\nm = shared_memory.SharedMemory(create=True, size=64 << 20)\nm.buf[:] = bytes(64 << 20)\nprint('ESCAPED')", ("disk", "error", "killed")),
    Hostile("infinite loop", "while True: pass", ("timeout",)),
    Hostile("infinite loop that ignores the warning", "import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except OSError: pass\nwhile True: pass", ("timeout",)),
    Hostile("loop that counts the warnings", "import signal\nsignal.signal(signal.SIGXCPU, lambda *_: None)\nwhile True: pass", ("timeout",)),
    Hostile("sleep past the limit", "import time\ntime.sleep(1000)", ("timeout",)),
    Hostile("sleep that catches everything", "import time, signal\nsignal.signal(signal.SIGTERM, lambda *_: None)\nwhile True:\n    try: time.sleep(1000)\n    except BaseException: pass", ("timeout",)),
    Hostile("waiting for input that never comes", "import os\nr, w = os.pipe()\nos.read(r, 1)", ("timeout",)),
    Hostile("stopping itself", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", ("timeout",)),
    Hostile("huge power", "print(len(str(9**9**8)))", ("timeout", "memory", "error")),
    Hostile("catastrophic pattern", "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')", ("timeout",)),
    Hostile("deep recursion", "import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1) + 1\nf(0)", ("killed", "memory", "error", "timeout")),
    Hostile("deep recursion in C", "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\nrepr(x)", ("killed", "memory", "error", "timeout")),
    Hostile("compiler bomb", "eval('(' * 10**6)", ("error", "memory", "killed", "output")),
    Hostile("nested expression", "eval('-' * 10**6 + '1')", ("error", "memory", "killed", "output")),
    Hostile("disk fill", "f = open('x', 'wb')\nwhile True: f.write(bytes(1 << 20)); f.flush()", ("disk",)),
    Hostile("disk fill in many files", "n = 0\nwhile True:\n    n += 1\n    open(f'x{n}', 'wb').write(bytes(1 << 20))", ("disk",)),
    Hostile("disk fill that swallows the error", "try:\n    open('x', 'wb').write(bytes(99 << 20))\nexcept OSError as e: print(e.errno)"),
    Hostile("file without blocks", "f = open('x', 'wb')\nf.truncate(1 << 40)\nprint('ESCAPED')", ("disk",)),
    Hostile("many empty files", "n = 0\nwhile n < 200_000:\n    n += 1\n    open(f'x{n}', 'w').close()\nprint('ESCAPED')", ("disk", "timeout")),
    Hostile("deep folders", "import os\nfor _ in range(500):\n    os.mkdir('d'); os.chdir('d')\nos.chmod('.', 0)"),
    Hostile("too many open files", "keep = [open('/dev/null') for _ in range(5000)]\nprint('ESCAPED')", ("error",)),
    Hostile("raising its own limits", TRY + "import resource as r\nfor k in (r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_NPROC, r.RLIMIT_FSIZE): attempt(lambda: r.setrlimit(k, (r.RLIM_INFINITY, r.RLIM_INFINITY)))", says="ValueError"),
    Hostile("core dump", "import os\nos.abort()", ("killed",)),
    Hostile("segmentation fault", "import ctypes\nctypes.string_at(0)", ("killed",)),
    # -- reading what is not its own
    Hostile("reading /etc", TRY + "for p in ('/etc/passwd', '/etc/shadow', '/etc/hostname', '/etc/hosts'): attempt(lambda: open(p).read())"),
    Hostile("listing the machine", "import os, sys\nfor p in ('/etc', '/root', '/home', '/var', '/srv', '/mnt', '/opt'):\n    for at, _, files in os.walk(p):\n        if not at.startswith(sys.base_prefix) and set(files) - {'ld.so.cache'}: print('ESCAPED', at, files)"),
    Hostile("a file outside by its path", TRY + "attempt(lambda: open({canary!r}).read())"),
    Hostile("a file outside by climbing", TRY + "attempt(lambda: open('../' * 20 + {canary!r}).read())"),
    Hostile("a symbolic link out", TRY + "os.symlink({canary!r}, 'link')\nattempt(lambda: open('link').read())"),
    Hostile("a hard link out", TRY + "attempt(lambda: os.link({canary!r}, 'link'))"),
    Hostile("overwriting a file outside", TRY + "attempt(lambda: open({canary!r}, 'w').write('gone'))\nattempt(lambda: os.unlink({canary!r}))\nattempt(lambda: os.truncate({canary!r}, 0))"),
    Hostile("a folder outside by rename", TRY + "attempt(lambda: os.rename(os.path.dirname({canary!r}), 'mine'))"),
    Hostile("changing the standard library", TRY + "attempt(lambda: open(os.__file__, 'a').write('#'))\nattempt(lambda: open('/usr/lib/x', 'w'))"),
    Hostile("the parent's environment", "import os\nprint({k: v for k, v in os.environ.items() if 'CANARY' in k} and 'ESCAPED')"),
    Hostile("environments in /proc", TRY + "for p in ('self', '1', os.getppid()): attempt(lambda: open(f'/proc/{p}/environ').read())"),
    Hostile("memory in /proc", TRY + "for p in ('self', '1', os.getppid()): attempt(lambda: open(f'/proc/{p}/mem', 'rb'))"),
    Hostile("descriptors in /proc", TRY + "attempt(lambda: os.listdir('/proc/1/fd'))\nattempt(lambda: open('/proc/1/fd/3', 'wb'))\nattempt(lambda: os.listdir('/proc/1/root'))"),
    Hostile("settings of the kernel", TRY + "attempt(lambda: open('/proc/sys/kernel/hostname', 'w'))\nattempt(lambda: os.listdir('/sys/class'))"),
    Hostile("devices", TRY + "for p in ('mem', 'kmsg', 'sda', 'vda', 'nvme0n1', 'fuse', 'kvm', 'tty', 'ptmx', 'net/tun'): attempt(lambda: open('/dev/' + p, 'rb'))"),
    Hostile("a device of its own", TRY + "import stat\nattempt(lambda: os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(8, 0)))"),
    Hostile("installed packages", TRY + "for p in ('torch', 'numpy', 'pip', 'pydantic'): attempt(lambda: __import__(p))"),
    Hostile("interplay itself", TRY + "attempt(lambda: __import__('interplay.execution.jail'))\nattempt(lambda: [m for m in sys.modules if 'interplay' in m][0])"),
    Hostile("import hooks", "import sys, builtins\nbuiltins.__import__ = None\nsys.meta_path.clear()\nsys.path[:] = []\nsys.modules.clear()\nprint('still here')", ("ok", "error")),
    Hostile("module planted in its folder", "open('json.py', 'w').write('x = 1')\nimport importlib, sys\nsys.modules.pop('json', None)\nimport json\nprint(json.x)"),
    # -- the network
    Hostile("a TCP connection to the host", TRY + "attempt(lambda: socket.create_connection(('127.0.0.1', {port}), 1))"),
    Hostile("a TCP connection to the world", TRY + "attempt(lambda: socket.create_connection(('1.1.1.1', 53), 1))"),
    Hostile("IPv6", TRY + "attempt(lambda: socket.socket(socket.AF_INET6, socket.SOCK_STREAM).connect(('::1', {port})))"),
    Hostile("UDP", TRY + "attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port})))"),
    Hostile("a server of its own", TRY + "attempt(lambda: socket.create_server(('0.0.0.0', 0)))"),
    Hostile("names", TRY + "attempt(lambda: socket.getaddrinfo('example.org', 80))"),
    Hostile("raw and packet sockets", TRY + "attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))\nattempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))"),
    Hostile("netlink", TRY + "attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))"),
    Hostile("the host's Unix socket", TRY + "attempt(lambda: socket.socket(socket.AF_UNIX).connect({path!r}))"),
    Hostile("the host's abstract socket", TRY + "attempt(lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + {name!r}))"),
    # -- other processes
    Hostile("killing the parent", "import os, signal\nfor s in (signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL):\n    try: os.kill(os.getppid(), s)\n    except OSError: pass\nprint('alive')", says="alive"),
    Hostile("killing everybody", "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass\nprint('alive')", ("ok", "killed")),
    Hostile("killing by number", "import os\nfor p in range(1, 40_000):\n    if p != os.getpid():\n        try: os.kill(p, 9)\n        except OSError: pass\nprint('alive')", says="alive"),
    Hostile("killing its own group", "import os\nos.killpg(0, 9)", ("killed",)),
    Hostile("tracing the parent", SYSCALL + "syscall(101, 117, 16, os.getppid(), 0, 0)", says="EPERM"),
    Hostile("another process's memory", SYSCALL + "syscall(310, 270, os.getppid(), None, 0, None, 0, 0)", says="EPERM"),
    Hostile("another process's descriptors", SYSCALL + "syscall(438, 438, libc.syscall(434, os.getppid(), 0), 1, 0)", says="EPERM"),
    Hostile("zombies", "import os\nfor _ in range(8):\n    if os.fork() == 0: os._exit(0)\nprint('done')", says="done"),
    Hostile("a daemon that stays", "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(1000)\n    os._exit(0)\nprint('gone')", says="gone"),
    Hostile("a daemon that talks on", "import os, time\nif os.fork() == 0:\n    while True: os.write(1, b'.'); time.sleep(.2)\nprint('gone')", says="gone"),
    Hostile("real-time priority", TRY + "attempt(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))\nattempt(lambda: os.nice(-10))"),
    # -- privileges
    Hostile("mounting", SYSCALL + "syscall(165, 40, b'none', b'.', b'tmpfs', 0, None)", says="EPERM"),
    Hostile("unmounting", SYSCALL + "syscall(166, 39, b'/tmp', 2)", says="EPERM"),
    Hostile("namespaces of its own", SYSCALL + "syscall(272, 97, 0x10000000)", says="EPERM"),
    Hostile("namespaces by clone", SYSCALL + "syscall(56, 220, 0x10000000 | 17, 0, 0, 0, 0)\nsyscall(435, 435, None, 0)", says="EPERM"),
    Hostile("the other numbers of x86", SYSCALL + "import sys\nif platform.machine() == 'x86_64': syscall(0x40000000 + 272, 0, 0x10000000)"),
    Hostile("joining namespaces", SYSCALL + "syscall(308, 268, 0, 0)", says="EPERM"),
    Hostile("changing root", TRY + "attempt(lambda: os.chroot('.'))"),
    Hostile("becoming root", TRY + "attempt(lambda: os.setuid(0))\nattempt(lambda: os.setgid(0))\nattempt(lambda: os.setgroups([0]))\nprint('ESCAPED' if 0 in (os.getuid(), os.geteuid()) else 'nobody')", says="nobody"),
    Hostile("set-user-id programs", "import os, subprocess\nfor p in ('/usr/bin/su', '/usr/bin/mount', '/usr/bin/newgrp', '/usr/bin/sudo'):\n    try: print('ESCAPED' if subprocess.run([p, '-c', 'id'], capture_output=True, timeout=2).returncode == 0 else 'refused')\n    except (OSError, subprocess.TimeoutExpired) as e: print(type(e).__name__)"),
    Hostile("a shell", "import os\nos.execv('/bin/sh', ['sh', '-c', 'cat /etc/passwd >/dev/null 2>&1 && echo ESCAPED; ls {canary} 2>/dev/null && echo ESCAPED; echo shell'])", says="shell"),
    Hostile("getting capabilities back", SYSCALL + "syscall(126, 91, (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6))", says="EPERM"),
    Hostile("keyrings", SYSCALL + "syscall(248, 217, b'user', b'k', b'v', 1, -3)\nsyscall(250, 219, 0, -3, 0)", says="EPERM"),
    Hostile("kernel programs", SYSCALL + "syscall(321, 280, 0, None, 0)\nsyscall(298, 241, None, 0, -1, -1, 0)\nsyscall(323, 282, 1)\nsyscall(425, 425, 8, None)", says="EPERM"),
    Hostile("kernel modules and restarts", SYSCALL + "syscall(175, 105, None, 0, b'')\nsyscall(169, 142, 0xFEE1DEAD, 672274793, 0, None)", says="EPERM"),
    Hostile("files by handle", SYSCALL + "syscall(304, 265, -100, None, 0)", says="EPERM"),
    Hostile("the clock and the name", TRY + "import time\nattempt(lambda: time.clock_settime(time.CLOCK_REALTIME, 0))\nattempt(lambda: socket.sethostname('mine'))"),
    Hostile("watching files outside", "import ctypes, os\nlibc = ctypes.CDLL(None)\nfd = libc.inotify_init()\nprint('ESCAPED' if libc.inotify_add_watch(fd, os.path.dirname({canary!r}).encode(), 0xFFF) >= 0 else 'blind')", says="blind"),
    Hostile("typing into a terminal", TRY + "import fcntl\nfor fd in range(3): attempt(lambda: fcntl.ioctl(fd, 0x5412, b'x'))"),
    # -- where nobody looks
    Hostile("files without a name", "import os, time\nfor n in range(40):\n    fd = os.open(f'f{n}', os.O_CREAT | os.O_RDWR)\n    os.unlink(f'f{n}')\n    os.write(fd, bytes(1 << 20))\ntime.sleep(2)\nprint('ESCAPED')", ("disk",)),
    Hostile("space past the end of a file", "import ctypes, os\nlibc = ctypes.CDLL(None)\nfd = os.open('f', os.O_CREAT | os.O_RDWR)\nprint('refused' if libc.fallocate(fd, 1, ctypes.c_long(0), ctypes.c_long(500 << 20)) else 'ESCAPED')", says="refused"),
    Hostile("memory in sockets", "import os, socket, time\nkeep = []\nfor _ in range(9):\n    if os.fork() == 0: break\nfor _ in range(120):\n    keep += socket.socketpair()\n    for s in keep[-2:]:\n        s.setblocking(False)\n        try:\n            while True: s.send(bytes(1 << 15))\n        except BlockingIOError: pass\ntime.sleep(2)\nprint('ESCAPED')", ("memory",)),
    Hostile("memory in processes that stand still", "import os, signal, time\nfor _ in range(6):\n    if os.fork() == 0:\n        x = bytearray(60 << 20)\n        os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(3)\nprint('ESCAPED')", ("memory",)),
    Hostile("nobody may look at it", "import ctypes\nprint('refused' if ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) else 'ESCAPED')", says="refused"),
    Hostile("flags out of a filter's reach", SYSCALL + "syscall(435, 435, (ctypes.c_uint64 * 11)(0x10000000), 88)", says="ENOSYS"),
    Hostile("memory that even the kernel forgets", SYSCALL + "syscall(447, 447, 0)\nsyscall(440, 440, 1, None, 0, 0, 0)", says="EPERM"),
    Hostile("a newer way to open", "import ctypes, struct\nlibc = ctypes.CDLL(None)\nhow = struct.pack('QQQ', 0, 0, 0)\nprint('ESCAPED' if any(libc.syscall(437, -100, p, how, 24) >= 0 for p in (b'/etc/passwd', {canary!r}.encode())) else 'shut')", says="shut"),
    Hostile("a handle on the parent", "import ctypes, os\nlibc = ctypes.CDLL(None)\nfor pid in (1, 2, os.getppid()):\n    fd = libc.syscall(434, pid, 0)\n    if fd >= 0: libc.syscall(424, fd, 9, None, 0)\nprint('still here')", ("ok", "killed")),
    Hostile("names nobody can type", "import os\nfor n in (b'\\xff\\xfe', b'a\\nb', b' ', b'-rf'):\n    os.mkdir(n)\n    os.symlink('/', n + b'/root')\n    os.mkfifo(n + b'/pipe')\n    os.chmod(n, 0)\nprint('named')", says="named"),
    Hostile("starting programs for ever", "import subprocess\nwhile True: subprocess.run(['/bin/true'])", ("timeout",)),
    # -- the result
    Hostile("descriptors it inherited", "import os\nfor fd in range(3, 1024):\n    try: os.fstat(fd); print('ESCAPED', fd)\n    except OSError: pass"),
    Hostile("a forged result", "import json, os, struct\nhead = json.dumps(dict(status='ok', code=0, seconds=0, sizes=[0, 0])).encode()\nfor fd in range(1, 64):\n    try: os.write(fd, struct.pack('I', len(head)) + head)\n    except OSError: pass\nraise SystemExit(3)", ("error",)),
    Hostile("a forged report of init", "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'{\"status\": 0, \"full\": false, \"cpu\": 0}')\n    except OSError: pass\nos._exit(4)", ("error",)),
    Hostile("leaving early with fine words", "import os\nprint('all tests passed', flush=True)\nos._exit(0)", says="all tests passed"),
    Hostile("an exit code out of range", "raise SystemExit(256 + 7)", ("error",)),
    Hostile("a failing exit that is caught", "import atexit, os\natexit.register(os._exit, 9)\nraise ValueError", ("error",)),
    Hostile("giant output", "while True: print('x' * 10_000)", ("output",)),
    Hostile("giant errors", "import sys\nwhile True: sys.stderr.write('x' * 10_000)", ("output",)),
    Hostile("giant output after closing", "import os\nos.close(0); os.close(2)\nwhile True: os.write(1, bytes(1 << 16))", ("output",)),
    Hostile("output without a newline", "import sys\nsys.stdout.write('x' * 1000)", says="x" * 1000),
    Hostile("escape sequences", "print('\\x1b[2J\\x1b]0;title\\x07\\x1b[31mred')", says="red"),
    Hostile("binary output", "import os\nos.write(1, bytes(range(256)))", says="\ufffd"),
    Hostile("no descriptors at all", "import os\nos.closerange(0, 64)", ("ok", "error", "killed")),
    Hostile("words for a status", "import sys\nsys.stderr.write('MemoryError [Errno 28]')"),
]  # fmt: skip
