"""The part of the sandbox that runs isolated: a warm interpreter that gives every program its own jail.

It uses the standard library only, because `worker.py` starts it in an interpreter without site-packages. There are
five processes, and each is given only what it needs:

    keeper       forks the zygote and cleans up when the zygote has ended; never sees a job
    zygote       imports modules once, isolates itself, then forks a supervisor per job; never sees a job's content
    supervisor   reads the job, makes new namespaces, writes stdin, reads output, checks time and memory, reports
    init         process 1 of the namespaces: mounts the job's folder, starts the program, reports how it ended
    program      has limits, no capabilities, a system-call filter, and only the descriptors 0, 1 and 2

Each has its file here. `walls.py` sets up the isolation, `job.py` reads and writes the messages of the channel, and
`processes.py` reads what the kernel knows about the processes of a job.

The program cannot forge a result: it has no descriptor of the channel, it may not trace other processes, and it cannot
send signals to `init`. Its standard input is read after it was forked, so the input is not in its memory before it
reads it. When init ends, the kernel ends every process of the job.
"""
