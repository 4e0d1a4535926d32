"""Every key in the files of a model folder, and how it is treated."""
