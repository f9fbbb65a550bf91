"""Games of other packages under the same contract, named `package:game`; each module's docstring is its page."""
