"""What HTTP clients see, over real sockets."""
