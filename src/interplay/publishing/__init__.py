"""Studies: run several arms with several seeds, and write pages in which every number can be traced to a run."""
