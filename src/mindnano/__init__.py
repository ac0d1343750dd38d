"""MindNano: long inputs on small machines."""
