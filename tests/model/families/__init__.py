"""Each checkpoint family, against an independent reference."""
