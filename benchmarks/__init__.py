"""Programs that measure; each prints a table and the machine it ran on, none passes or fails."""
