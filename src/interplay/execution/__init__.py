"""Running what models wrote: programs, queries, formulas and circuits, behind walls and within limits."""
