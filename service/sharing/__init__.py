"""What the processes of one service share: numbers, limits and connections."""
