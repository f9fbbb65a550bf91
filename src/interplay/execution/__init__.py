"""Runs what models wrote (programs, queries, formulas and circuits), isolated and within limits."""
