"""Studies: runs of several arms and seeds, what they came to, and pages in which every number is traced to a run."""
