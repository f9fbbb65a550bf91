"""A run over many processes and machines, with Ray. Only `cluster.py` imports ray."""
