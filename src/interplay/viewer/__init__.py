"""A local web page over run folders: `interplay view`. Reads files only, imports no torch (except to play a game).

index.py      byte offsets of episodes, also while a run writes them
summary.py    one row about each episode, and filters
run.py        the files of one run folder; library.py: the runs that are shown
episode.py    an episode as the page shows it; tokens.py: the tokens of a turn
explain.py    where an advantage comes from: rewards, return, baseline
api.py        the questions that the page asks; server.py: answers them; export.py: answers them in one file
verdicts.py   what judges said; gold.py: where a judge and a gold reward disagree
pairs.py      pairs of replies that a person compares
game.py       a person plays a seat in the browser
web/          the page: plain ES modules, no build step; vendor/ has preact, htm and uPlot as published
"""
