"""The backend that runs graphs."""
