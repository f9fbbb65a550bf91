"""Modules that programs can import although this package is not installed beside them. Standard library only."""
