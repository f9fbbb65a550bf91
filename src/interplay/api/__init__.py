"""What `import interplay as ip` offers: train, evaluate, load and look at runs from Python.

    train.py     train and evaluate, as the commands of the same names do
    team.py      a trained team that plays tasks and answers messages
    run.py       the files of a run: metrics as a frame, episodes as records
    loop.py      lets these functions run inside a running event loop, for example in a notebook

The names are listed in `interplay/__init__.py`, which imports them when they are first used.
"""
