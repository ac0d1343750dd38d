"""A NumPy twin of every kernel: the specification that tests hold the compiled ones against."""
