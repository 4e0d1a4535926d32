"""What concerns the operating system: processes, signals, mapped files; and what a start is doing."""
