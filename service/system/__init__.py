"""What the operating system is asked for: processes, signals, memory of files; and what a start is doing."""
