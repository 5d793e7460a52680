"""Running on the modelled machine, and its clock."""
