"""Distributes a run over several processes and machines with Ray. Only `cluster.py` imports ray."""
