"""Models and adapters on a device: the code that engine and learner share."""
