"""How many replicas are needed, and how to balance them: measured costs and a simulation."""
