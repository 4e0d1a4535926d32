"""Programs that put the service under attack, overload or a long load, and watch what other clients see."""
