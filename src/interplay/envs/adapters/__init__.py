"""Games of other packages under the same contract, named `package:game`. Each module's docstring is its page."""
