"""Distributes a run over several processes and machines with Ray. Only `connection.py` imports ray."""
