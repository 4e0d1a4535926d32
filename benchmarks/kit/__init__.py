"""What the programs share: servers and load clients, connections, taking turns, tables."""
