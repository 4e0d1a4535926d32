"""What attention may be besides a dot product of whole sequences: distances, padding, interventions."""
