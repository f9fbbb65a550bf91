"""What runs on the far side of the sandbox: a warm interpreter that gives every program a jail of its own.

Standard library only: started by `sandbox.py` in an interpreter without site-packages. Four processes, each of which
knows only what it must:

    zygote       imports once, shuts itself in, then forks a supervisor for each job; never sees a job's content
    supervisor   reads the job, makes fresh namespaces, feeds stdin, reads output, watches clock and memory, reports
    init         process 1 of the namespaces: mounts the job's folder, starts the program, says how it ended
    program      under limits, without capabilities, behind a system-call filter; owns descriptors 0, 1, 2 alone

Each has its file here. `walls.py` has the walls, `job.py` what comes and goes through the channel, `processes.py` what
the kernel tells of the processes of a job.

The program cannot forge a result: it holds no descriptor of the channel, may not trace anyone, and `init` cannot be
signalled from inside. Its standard input is read after it was forked, so what is sent there is not in its memory.
When init ends, the kernel ends every process of the job.
"""
