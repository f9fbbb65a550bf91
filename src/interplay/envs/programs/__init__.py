"""Outside programs as environments: whatever asks a model and ends with a result."""
