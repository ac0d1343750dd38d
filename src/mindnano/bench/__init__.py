"""Measurements: kernels against the machine's limits, and the engine by depth. Imports the engine."""
