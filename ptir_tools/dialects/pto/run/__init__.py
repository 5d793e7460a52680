"""The executor: the modelled machine, and its timeline."""
