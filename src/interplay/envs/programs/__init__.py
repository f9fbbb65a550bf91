"""Outside programs as environments: any program that asks models and returns a result."""
