def demo() -> None:
    """Demo."""
