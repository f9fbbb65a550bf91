"""Public formats, one module for each kind of row. `interplay.envs.tasks.data` says how to add one."""
