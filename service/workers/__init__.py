"""A service of several processes: a supervisor, and workers that it forks and replaces."""
